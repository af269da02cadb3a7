// What the site consists of: the sidebar, and the pages of the folder. The configuration and the check
// share it, so that a page is listed in one place only.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const docs = dirname(dirname(fileURLToPath(import.meta.url)));
export const repository = dirname(docs);

/** pages lists every Markdown file of the site, relative to docs/. */
export function pages(dir = docs) {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return entry.name.startsWith(".") || entry.name === "images" ? [] : pages(path);
    return entry.name.endsWith(".md") ? [relative(docs, path)] : [];
  });
}

/** sidebar is sidebar.json without optional pages that are not there: a build makes them that not every checkout has. A reader sees the
 * headings of all groups, and the pages of the group that is open: the one of the page, which VitePress opens by itself. */
export function sidebar() {
  const groups = JSON.parse(readFileSync(join(docs, ".vitepress/sidebar.json"), "utf8"));
  for (const group of groups) {
    group.items = group.items.filter((item) => !item.optional || existsSync(join(docs, item.link + ".md")));
    group.collapsed = true;
  }
  return groups;
}

/** links are the pages that the sidebar lists, relative to docs/. */
export function links(items = sidebar()) {
  return items.flatMap((item) => [...(item.link ? [item.link.slice(1) + ".md"] : []), ...(item.items ? links(item.items) : [])]);
}

/** slugify makes the anchor of a heading as GitHub does. */
export function slugify(heading) {
  return heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").trim().replace(/\s/g, "-");
}
