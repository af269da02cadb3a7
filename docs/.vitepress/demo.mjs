// Draws a recording of `make demo` from its real output: node demo.mjs <file> writes docs/images/demo.svg. Lines appear in the order and
// rhythm of the run, played faster; readers who prefer less motion see the end.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { docs } from "./pages.mjs";

const [columns, rows, charWidth, lineHeight, seconds, rest] = [116, 26, 7.3, 17, 32, 6];
const lines = readFileSync(process.argv[2], "utf8").split("\n").filter((line) => /^ *\d+\.\ds  |^RESULT /.test(line));
const text = (line) => line.slice(0, columns).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const colour = (line) => (/^RESULT/.test(line) ? "#7ee787" : { server: "#79c0ff", node: "#d2a8ff", pod: "#8b949e", pods: "#7ee787", disrupt: "#ffa657", apply: "#e3b341" })[line.trim().split(/\s+/)[1]] ?? "#c9d1d9";

// Long waits are shortened, so that something happens all the time.
let at = 0;
let before = 0;
const times = lines.map((line) => {
  const now = parseFloat(line) || before + 0.5;
  at += 0.12 + Math.min(Math.max(now - before, 0), 3);
  before = now;
  return at;
});
const total = seconds + rest;
const percent = (time) => ((time / at) * seconds * 100) / total;
const [width, height] = [Math.round(columns * charWidth) + 32, rows * lineHeight + 64];
const scroll = lines.map((_, index) => [percent(times[index]), -Math.max(0, index + 1 - rows) * lineHeight]);
const keyframes = scroll.filter(([, y], index) => y && y !== scroll[index - 1]?.[1]).map(([when, y]) => `${when.toFixed(2)}%{transform:translateY(${y}px)}`).join("");
const end = scroll.at(-1)[1];
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" role="img">
<title>make demo: pods are created, servers are launched, nodes join, and everything is deleted again</title>
<style>
.all{animation:scroll ${total}s step-end infinite}
.l{animation:${total}s step-end infinite}
@keyframes scroll{0%{transform:none}${keyframes}100%{transform:translateY(${end}px)}}
${lines.map((_, index) => `@keyframes l${index}{0%{opacity:0}${percent(times[index]).toFixed(2)}%{opacity:1}}`).join("\n")}
@media (prefers-reduced-motion:reduce){.all{animation:none;transform:translateY(${end}px)}.l{animation:none!important}}
</style>
<rect width="${width}" height="${height}" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="6" fill="#ff5f56"/><circle cx="40" cy="18" r="6" fill="#ffbd2e"/><circle cx="60" cy="18" r="6" fill="#27c93f"/>
<text x="${width / 2}" y="22" fill="#8b949e" text-anchor="middle">$ make demo</text>
<clipPath id="c"><rect x="0" y="36" width="${width}" height="${height - 44}"/></clipPath>
<g clip-path="url(#c)"><g class="all">
${lines.map((line, index) => `<text class="l" style="animation-name:l${index}" x="16" y="${54 + index * lineHeight}" fill="${colour(line)}" xml:space="preserve">${text(line)}</text>`).join("\n")}
</g></g>
</svg>
`;
writeFileSync(join(docs, "images/demo.svg"), svg);
console.log(`docs/images/demo.svg: ${lines.length} lines, ${Math.round(svg.length / 1024)} KiB`);
