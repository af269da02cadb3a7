// Checks what the site generator does not: pages that the sidebar does not list, images that no page shows, links to headings
// and files that do not exist, owners that have moved, and numbers of the start page that are outdated. It reads the sources, so
// it also holds on GitHub.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { docs, links, pages, repository, slugify } from "./pages.mjs";

const problems = [];
const all = pages();
const listed = new Set(links());
for (const page of all) if (!listed.has(page) && page !== "index.md") problems.push(`docs/${page}: the sidebar does not list it (docs/.vitepress/sidebar.json)`);
for (const page of listed) if (!all.includes(page)) problems.push(`docs/.vitepress/sidebar.json: ${page} does not exist`);

const sources = [...all.map((page) => join(docs, page)), ...["README.md", "README.vi.md", "CONTRIBUTING.md", "SECURITY.md"].map((file) => join(repository, file)).filter(existsSync)];
const prose = new Map(sources.map((file) => [file, readFileSync(file, "utf8").replace(/^---\n[\s\S]*?\n---\n/, "")]));

// The anchors of GitHub; VitePress makes the same for what our headings consist of.
function anchors(text) {
  const seen = new Map();
  return new Set(
    [...text.replace(/^(`{3,}).*\n[\s\S]*?^\1\s*$/gm, "").matchAll(/^#{1,6} (.*)$/gm)].map(([, heading]) => {
      const slug = slugify(heading);
      const count = seen.get(slug) ?? 0;
      seen.set(slug, count + 1);
      return count ? `${slug}-${count}` : slug;
    }),
  );
}

const images = new Set();
for (const [file, text] of prose) {
  const name = relative(repository, file);
  const plain = text.replace(/^\s*(`{3,}).*\n[\s\S]*?^\s*\1\s*$/gm, "").replace(/(`+)[^`\n][\s\S]*?\1/g, "code");
  for (const [, href] of plain.matchAll(/\]\(([^)\s]+)(?:\s+"[^"]*")?\)/g)) {
    if (/^[a-z]+:/.test(href)) continue;
    const [path, fragment] = decodeURI(href).split("#");
    const target = path === "" ? file : normalize(join(dirname(file), path));
    if (!existsSync(target)) {
      problems.push(`${name}: ${href} does not exist`);
      continue;
    }
    images.add(target);
    if (fragment && target.endsWith(".md") && !anchors(prose.get(target) ?? readFileSync(target, "utf8")).has(fragment)) problems.push(`${name}: no heading for ${href}`);
  }
}
// A folder that has moved would leave its pages without an owner.
for (const [, path] of prose.get(join(docs, "contribute/documentation.md")).matchAll(/`((?:charts|cmd|config|docs|hack|internal|pkg|test)\/[\w./-]+)`/g)) {
  if (!existsSync(join(repository, path))) problems.push(`docs/contribute/documentation.md: ${path} does not exist`);
}
for (const image of readdirSync(join(docs, "images"))) {
  if (!images.has(join(docs, "images", image))) problems.push(`docs/images/${image}: no page shows it`);
}

// The start page's numbers are those of the recording beside it and of the last measurement of costs, both of which are written anew.
const recording = readFileSync(join(docs, "images/demo.svg"), "utf8").replace(/<style>[\s\S]*<\/style>|<[^>]*>/g, "\n");
const costs = readFileSync(join(docs, "concepts/cost.md"), "utf8");
for (const sentence of readFileSync(join(docs, "index.md"), "utf8").split(/[.:] |\n/)) {
  const [name, source] = sentence.includes("recording") ? ["images/demo.svg", recording] : ["concepts/cost.md", costs];
  for (const [number] of sentence.matchAll(/\d+(?:[.,]\d+)+|\d+(?= %)/g)) {
    if (!new RegExp(`(?<![\\d.,])${number.replaceAll(".", "\\.")}(?![.,]?\\d)`).test(source)) problems.push(`docs/index.md: ${number} is not in docs/${name}`);
  }
}

// The page on troubleshooting names no reason that does not exist. What each reason means is on the page of events.
const events = readFileSync(join(docs, "reference/events.md"), "utf8");
const fields = readFileSync(join(docs, "reference/fields.md"), "utf8");
// The reasons of a NodeClaim's condition Launched have no page: these are all of them.
const launched = readFileSync(join(repository, "internal/launch/reasons.go"), "utf8");
const troubleshooting = readFileSync(join(docs, "operate/troubleshooting.md"), "utf8");
const symptoms = [...troubleshooting.matchAll(/^\| ([^|]+ \| [^|]+) \|$/gm)].map(([, row]) => row).filter((row) => !/^(you see|---)/.test(row));
const core = /^(Pending|CrashLoopBackOff|FailedCreate|OutOfmemory|OutOfcpu|StartupTaintsExist|KnownEphemeralTaintsExist|ResourceNotRegistered|ValidatingAdmissionPolicy|WaitForFirstConsumer|NotReady|Initialized|Registered|Ready)$/;
for (const symptom of symptoms) {
  for (const [, reason] of symptom.matchAll(/`([A-Z][a-z]+(?:[A-Z][A-Za-z]+)+)(?:=\w+)?`/g)) {
    if (!events.includes(`\`${reason}\``) && !fields.includes(`\`${reason}\``) && !launched.includes(`"${reason}"`) && !core.test(reason) && !reason.startsWith("KarpenterBizfly")) {
      problems.push(`docs/operate/troubleshooting.md: ${reason} is no reason of an event or a condition`);
    }
  }
}
if (symptoms.length < 30) problems.push(`docs/operate/troubleshooting.md: only ${symptoms.length} symptoms are read`);

if (problems.length) {
  console.error(problems.join("\n"));
  console.error(`${problems.length} problems in the pages`);
  process.exit(1);
}
console.log(`${all.length} pages, ${symptoms.length} symptoms: every page listed, every link, heading and image in its place`);
