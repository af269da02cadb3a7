import { existsSync, statSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { defineConfig, type MarkdownRenderer } from "vitepress";
import { docs, repository, sidebar, slugify } from "./pages.mjs";

const github = "https://github.com/bizflycloud/karpenter-provider-bizflycloud";
// Each released version is built into a folder of its own, and main into the top: see contribute/documentation.md.
const base = process.env.DOCS_BASE ?? "/karpenter-provider-bizflycloud/";
const version = process.env.DOCS_VERSION ?? "main";

// Pages are read on GitHub too, so they link to samples, charts and sources by relative paths. The site has no such files:
// these links lead to the repository, at the version that the page belongs to.
function linkToRepository(md: MarkdownRenderer) {
  const open = md.renderer.rules.link_open!;
  md.renderer.rules.link_open = (tokens, index, options, env, self) => {
    const href = tokens[index].attrGet("href") ?? "";
    if (href && !/^([a-z]+:|#|\/)/.test(href) && env.path) {
      const [path, fragment] = href.split("#");
      const target = normalize(join(dirname(env.path), decodeURI(path)));
      if (relative(docs, target).startsWith("..")) {
        if (!existsSync(target)) throw new Error(`${relative(repository, env.path)}: ${href} does not exist`);
        const kind = statSync(target).isDirectory() ? "tree" : "blob";
        const suffix = fragment ? `#${fragment}` : "";
        tokens[index].attrSet("href", `${github}/${kind}/${version}/${relative(repository, target)}${suffix}`);
      }
    }
    return open(tokens, index, options, env, self);
  };
}

// Pages have Go templates in sentences; to Vue, braces are an expression.
function braces(md: MarkdownRenderer) {
  for (const rule of ["text", "code_inline"] as const) {
    const render = md.renderer.rules[rule]!;
    md.renderer.rules[rule] = (...args) => render(...args).replaceAll("{{", "&#123;&#123;");
  }
}

// A long name may break between its words, as karpenter_bizfly_ | build_info, so that tables are not wider than the page.
function breaks(md: MarkdownRenderer) {
  const render = md.renderer.rules.code_inline!;
  md.renderer.rules.code_inline = (...args) =>
    render(...args).replace(/>([^<]{17,})</, (_, name) => `>${name.replace(/([_.\/,={]|[a-z](?=[A-Z]))(?=[\w*])/g, "$1<wbr>")}<`);
}

// Comments are for generators and checks. Lines stay, so that the numbers in messages are right.
function comments(md: MarkdownRenderer) {
  md.core.ruler.before("block", "comments", (state) => {
    state.src = state.src.replace(/^ *<!--[^]*?-->$/gm, (comment) => comment.replace(/[^\n]+/g, ""));
  });
}

function mermaid(md: MarkdownRenderer) {
  const fence = md.renderer.rules.fence!;
  md.renderer.rules.fence = (tokens, index, options, env, self) => {
    const token = tokens[index];
    if (token.info.trim() === "mermaid") return `<Mermaid source="${encodeURIComponent(token.content)}" />`;
    if (token.info.trim() === "promql") token.info = "text"; // the highlighter does not know it
    return fence(tokens, index, options, env, self);
  };
}

export default defineConfig({
  title: "Karpenter for BizFly Cloud",
  description: "Karpenter provider for BizFly Cloud: right-sized servers for unschedulable pods",
  base,
  outDir: process.env.DOCS_OUT ?? join(repository, ".cache/site"),
  cacheDir: join(repository, ".cache/vitepress"),
  cleanUrls: true,
  lastUpdated: false,
  markdown: {
    // The anchors of GitHub, where the pages are read as well.
    anchor: { slugify },
    config(md) {
      // Nothing in a page is HTML: <id> in a sentence is what it looks like, here and on GitHub.
      md.set({ html: false });
      comments(md);
      braces(md);
      breaks(md);
      mermaid(md);
      linkToRepository(md);
    },
  },
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  themeConfig: {
    nav: [
      { text: "Get started", link: "/get-started/bke", activeMatch: "/get-started/" },
      { text: "How-to", link: "/how-to/workloads", activeMatch: "/how-to/" },
      { text: "Concepts", link: "/concepts/how-it-works", activeMatch: "/concepts/" },
      { text: "Reference", link: "/reference/fields", activeMatch: "/reference/" },
      { text: "Operate", link: "/operate/troubleshooting", activeMatch: "/operate/" },
      { text: version, items: [{ text: "Versions", link: `${github}/releases` }, { text: "Changelog", link: `${github}/blob/main/CHANGELOG.md` }] },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: "local" },
    editLink: { pattern: `${github}/edit/main/docs/:path`, text: "Edit this page" },
    socialLinks: [{ icon: "github", link: github }],
    footer: { message: "Apache-2.0. Alpha: tested against a simulator of BizFly Cloud, not yet validated on the real one." },
  },
});
