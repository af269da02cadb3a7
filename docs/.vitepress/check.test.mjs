// The check itself: each fault that it promises to find fails it, in a copy of the pages.
import { strict as assert } from "node:assert";
import { spawnSync } from "node:child_process";
import { appendFileSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";
import { docs, repository } from "./pages.mjs";

// check runs it after a change to a copy, in which everything beside docs/ is the original.
function check(change) {
  const copy = mkdtempSync(join(tmpdir(), "docs-check-"));
  try {
    for (const entry of readdirSync(repository)) if (!["docs", ".git"].includes(entry)) symlinkSync(join(repository, entry), join(copy, entry));
    cpSync(docs, join(copy, "docs"), { recursive: true, filter: (path) => basename(path) !== "node_modules" && basename(path) !== "cache" });
    change(join(copy, "docs"));
    const { status, stderr } = spawnSync(process.execPath, [join(copy, "docs/.vitepress/check.mjs")], { encoding: "utf8" });
    return { status, stderr };
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}
const replaceIn = (path, from, to) => {
  const text = readFileSync(path, "utf8");
  assert(text.includes(from), `${path} has no ${from}`);
  writeFileSync(path, text.replaceAll(from, to));
};

for (const [fault, message, change] of [
  ["a link to a file that does not exist", /nowhere\.md does not exist/, (dir) => appendFileSync(join(dir, "operate/monitoring.md"), "\n[x](nowhere.md)\n")],
  ["a link to a heading that does not exist", /no heading for/, (dir) => appendFileSync(join(dir, "operate/monitoring.md"), "\n[x](security.md#nowhere)\n")],
  ["a page that the sidebar does not list", /the sidebar does not list it/, (dir) => writeFileSync(join(dir, "operate/new.md"), "# A page\n")],
  ["a sidebar that lists a page that does not exist", /does not exist/, (dir) => rmSync(join(dir, "how-to/workloads.md"))],
  ["an image that no page shows", /no page shows it/, (dir) => writeFileSync(join(dir, "images/unused.svg"), "<svg/>")],
  ["an owner that has moved", /internal\/moved does not exist/, (dir) => appendFileSync(join(dir, "contribute/documentation.md"), "| `internal/moved` | |\n")],
  ["a number of the start page that an older recording had", /1\.3 is not in docs\/images\/demo\.svg/, (dir) => replaceIn(join(dir, "index.md"), " 1.1 seconds", " 1.3 seconds")],
  ["a share of the start page that an older measurement had", /99 is not in docs\/concepts\/cost\.md/, (dir) => replaceIn(join(dir, "index.md"), "cost 15 %", "cost 99 %")],
  ["a reason that does not exist", /CloudAbsent is no reason/, (dir) => replaceIn(join(dir, "operate/troubleshooting.md"), "`CloudUnavailable`", "`CloudAbsent`")],
]) {
  test(`should fail for ${fault}`, () => {
    const { status, stderr } = check(change);
    assert.equal(status, 1, stderr);
    assert.match(stderr, message);
  });
}
test("should pass for the pages as they are", () => assert.equal(check(() => {}).status, 0));
