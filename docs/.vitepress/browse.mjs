// Opens the built site in headless Chromium as a reader does: start page, search, navigation, a code block, a diagram, a narrow
// screen. CHROMIUM names the browser (Debian's package chromium, or Chrome). Screenshots go to .cache/site-screenshots.
import { strict as assert } from "node:assert";
import { createReadStream, existsSync, mkdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { chromium } from "playwright-core";
import { links, repository } from "./pages.mjs";

const base = process.env.DOCS_BASE ?? "/karpenter-provider-bizflycloud/";
const site = process.env.DOCS_OUT ?? join(repository, ".cache/site");
const shots = join(repository, ".cache/site-screenshots");
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".woff2": "font/woff2" };

// As GitHub Pages serves it: /page is page.html.
const server = createServer((request, response) => {
  const path = decodeURI(new URL(request.url, "http://localhost").pathname);
  const file = [path, path + ".html", join(path, "index.html")].map((name) => join(site, name.replace(base, "/"))).find((name) => existsSync(name) && statSync(name).isFile());
  if (!path.startsWith(base) || !file) return response.writeHead(404).end("not found");
  response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream" });
  createReadStream(file).pipe(response);
}).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const url = (path) => `http://127.0.0.1:${server.address().port}${base}${path}`;

const executablePath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
assert(executablePath, "no browser: install Debian's package chromium, or name one in CHROMIUM");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
mkdirSync(shots, { recursive: true });
let steps = 0;
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(`${page.url()}: ${error.message}`));
  page.on("response", (response) => response.status() >= 400 && errors.push(`${response.status()} ${response.url()}`));
  const step = async (what, run) => {
    await run();
    await page.screenshot({ path: join(shots, `${String(++steps).padStart(2, "0")}-${what.replace(/[^a-z0-9]+/gi, "-")}.png`) });
    assert.deepEqual(errors, [], what);
    console.log(`ok: ${what}`);
  };
  await step("start page", async () => {
    await page.goto(url(""));
    await page.getByRole("heading", { level: 1 }).first().waitFor();
    assert.match(await page.title(), /Karpenter/);
    const recording = page.locator(".VPHero .recording img");
    await recording.waitFor();
    assert((await recording.evaluate((img) => img.naturalWidth)) > 0, "the recording of the demo is not shown");
    const box = await recording.boundingBox();
    assert(box.x + box.width / 2 > 640, `the recording of the demo is not in the right half: ${JSON.stringify(box)}`);
    assert((await page.locator(".VPFeature").count()) >= 3, "the start page does not show what one gets");
  });
  for (const [term, expected] of [["quota exceeded", /troubleshooting|events|runbooks|fields/i], ["consolidation", /disruption|placement/i], ["join token", /bke|bootstrap|get-started|credentials/i]]) {
    await step(`search for ${term}`, async () => {
      await page.goto(url(""));
      await page.locator(".VPNavBarSearch button").first().click();
      await page.locator("#localsearch-input").fill(term);
      const result = page.locator("#localsearch-list a.result");
      await result.first().waitFor();
      const found = (await result.evaluateAll((all) => all.slice(0, 8).map((a) => a.getAttribute("href")))).join(" ");
      assert.match(found, expected, `search for ${term} finds ${found}`);
    });
  }
  await step("navigation by the sidebar", async () => {
    await page.goto(url("get-started/try"));
    const groups = page.locator(".VPSidebar .VPSidebarItem.level-0");
    assert.equal(await page.locator(".VPSidebar .VPSidebarItem.level-0:not(.collapsed)").count(), 1, "only the group of the page is open");
    await groups.filter({ hasText: "Operate" }).locator(".caret").click();
    await page.locator(".VPSidebar").getByRole("link", { name: "Troubleshooting" }).click();
    await page.waitForURL(/operate\/troubleshooting/);
    await page.getByRole("heading", { level: 1, name: "Troubleshooting" }).waitFor();
    await page.getByRole("link", { name: "Edit this page" }).waitFor();
  });
  await step("code block", async () => {
    await page.goto(url("get-started/bke"));
    const block = page.locator("div.language-sh").first();
    await block.waitFor();
    await block.hover();
    assert(await block.locator("button.copy").count(), "a code block has no button to copy it");
    assert((await block.locator("code span[style]").count()) > 0, "a code block is not highlighted");
  });
  await step("tables that are not cut off", async () => {
    for (const link of links()) {
      await page.goto(url(link.replace(/\.md$/, "")), { waitUntil: "domcontentloaded" });
      const cut = await page.locator(".vp-doc table").evaluateAll((tables) => tables.filter((t) => t.scrollWidth > t.clientWidth + 1).map((t) => t.innerText.slice(0, 60)));
      assert.deepEqual(cut, [], `a table of ${link} is cut off at 1280 pixels`);
    }
  });
  await step("diagram", async () => {
    await page.goto(url("concepts/how-it-works"));
    await page.locator("div.mermaid svg").first().waitFor({ timeout: 20000 });
    for (const diagram of await page.locator("div.mermaid").all()) await diagram.locator("svg").waitFor({ timeout: 20000 });
    await page.locator("div.mermaid svg").first().scrollIntoViewIfNeeded();
  });
  await step("dark", async () => {
    await page.locator(".VPSwitchAppearance").first().click();
    assert(await page.locator("html.dark").count(), "the switch does not make it dark");
  });
  await step("narrow screen", async () => {
    await page.setViewportSize({ width: 375, height: 740 });
    await page.goto(url("operate/troubleshooting"));
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.locator(".VPLocalNav button.menu").click();
    await page.locator(".VPSidebar.open").waitFor();
  });
  // Tables and code scroll inside of their own box; the page itself does not.
  const all = ["index.md", ...links()];
  const wide = [];
  for (const link of all) {
    await page.goto(url(link.replace(/\.md$/, "").replace(/(index|README)$/, "")), { waitUntil: "domcontentloaded" });
    await page.locator("h1, .VPHero").first().waitFor();
    for (const diagram of await page.locator("div.mermaid").all()) await diagram.locator("svg").waitFor({ timeout: 20000 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (overflow > 0) wide.push(`${link}: ${overflow} px`);
  }
  assert.deepEqual(wide, [], "pages that are wider than a narrow screen");
  assert.deepEqual(errors, []);
  console.log(`ok: all ${all.length} pages open without an error and fit on a narrow screen`);
} finally {
  await browser.close();
  server.close();
}
