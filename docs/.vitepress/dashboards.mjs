// Draws the dashboards of the chart with the numbers of a demo, as Prometheus's own engine computes them: `make docs PICTURES=true` writes
// docs/images/dashboard-<name>.svg. Layout, titles and units come from the dashboards' own files.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { docs, repository } from "./pages.mjs";

const all = JSON.parse(readFileSync(process.argv[2], "utf8"));
const colours = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#ec4899", "#84cc16", "#f97316", "#64748b"];
const [cell, row, gap] = [44, 26, 6]; // pixels of a grid column and row, and between panels
const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const crop = (text, length) => escape(text.length > length ? text.slice(0, length - 1) + "…" : text);

function format(value, unit = "") {
  if (unit.startsWith("percentunit")) return `${Math.round(value * 100)} %`;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const number = value.toLocaleString("en-US", { maximumFractionDigits: digits });
  return unit.startsWith("currency:VND") ? `${number} VND` : unit === "s" ? `${number} s` : number;
}

function panel(p, series) {
  const unit = p.fieldConfig?.defaults?.unit;
  const [x, y, w, h] = [p.gridPos.x * cell + gap / 2, p.gridPos.y * row + gap / 2 + 34, p.gridPos.w * cell - gap, p.gridPos.h * row - gap];
  let out = `<g transform="translate(${x},${y})"><rect width="${w}" height="${h}" rx="4" fill="#fff" stroke="#e2e8f0"/><text x="8" y="17" font-weight="600" fill="#334155">${crop(p.title, Math.floor(w / 6.6))}</text>`;
  if (p.type === "stat") {
    const name = /version/i.test(p.title) && series[0]?.name && !series[0].name.startsWith("__") ? series[0].name : undefined;
    const last = series[0]?.points.at(-1)?.[1];
    out += `<text x="${w / 2}" y="${h / 2 + 18}" font-size="${format(last ?? 0, unit).length > 11 ? 17 : 22}" text-anchor="middle" fill="#0f172a">${name ? crop(name, 16) : last === undefined ? "no data" : format(last, unit)}</text></g>`;
    return out;
  }
  const stacked = p.fieldConfig?.defaults?.custom?.stacking?.mode === "normal";
  const shown = series.filter((s) => s.points.length).sort((a, b) => Math.max(...b.points.map(([, v]) => v)) - Math.max(...a.points.map(([, v]) => v)));
  const [left, right, top, bottom] = [54, 10, 28, 44];
  const end = Math.max(1, ...shown.flatMap((s) => s.points.map(([t]) => t)));
  const base = new Map();
  const lines = shown.map((s) => s.points.map(([t, v]) => {
    const from = stacked ? (base.get(t) ?? 0) : 0;
    base.set(t, from + v);
    return [t, from + v];
  }));
  const most = Math.max(0, ...lines.flat().map(([, v]) => v)) || 1;
  const px = (t) => (left + (t / end) * (w - left - right)).toFixed(1);
  const py = (v) => (h - bottom - (Math.max(v, 0) / most) * (h - top - bottom)).toFixed(1);
  for (const part of [0, 0.5, 1]) {
    out += `<line x1="${left}" x2="${w - right}" y1="${py(part * most)}" y2="${py(part * most)}" stroke="#e2e8f0"/><text x="${left - 5}" y="${+py(part * most) + 4}" font-size="9" text-anchor="end" fill="#64748b">${format(part * most, unit).replace(" VND", "")}</text>`;
  }
  for (const part of [0, 0.5, 1]) out += `<text x="${px(part * end)}" y="${h - bottom + 13}" font-size="9" text-anchor="middle" fill="#64748b">${Math.round(part * end)} s</text>`;
  lines.forEach((points, index) => {
    const colour = colours[index % colours.length];
    // Steps of the scrapes; a gap where Prometheus had no number.
    let path = "";
    points.forEach(([t, v], i) => (path += `${i && t - points[i - 1][0] < 7 ? "L" : "M"}${px(t)} ${py(v)}`));
    out += `<path d="${path}" fill="none" stroke="${colour}" stroke-width="1.6"/>`;
  });
  let at = 8;
  shown.slice(0, 8).forEach((s, index) => {
    const name = crop(s.name === "__auto" || !s.name.trim() ? "value" : s.name, 26);
    if (at + name.length * 5.4 + 18 > w) return;
    out += `<rect x="${at}" y="${h - 15}" width="9" height="3" fill="${colours[index % colours.length]}"/><text x="${at + 13}" y="${h - 10}" font-size="9.5" fill="#475569">${name}</text>`;
    at += name.length * 5.4 + 26;
  });
  return out + "</g>";
}

for (const name of ["fleet-and-cost", "launches", "api-health", "capacity"]) {
  const board = JSON.parse(readFileSync(join(repository, "charts/karpenter-provider-bizflycloud/files/dashboards", `${name}.json`), "utf8"));
  const panels = board.panels.filter((p) => p.gridPos.y < 20); // what fits on a screen
  const height = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h)) * row + 40;
  const body = panels.map((p) => panel(p, all.filter((s) => s.Dashboard === `${name}.json` && s.Panel === p.title).map((s) => ({ name: s.Name, points: s.Points ?? [] }))));
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${24 * cell} ${height}" font-family="system-ui,sans-serif" font-size="11" role="img"><title>${escape(board.title)}</title><rect width="100%" height="100%" fill="#f8fafc"/><text x="10" y="23" font-size="15" font-weight="600" fill="#0f172a">${escape(board.title)}</text>${body.join("\n")}</svg>\n`;
  writeFileSync(join(docs, "images", `dashboard-${name}.svg`), svg);
  console.log(`docs/images/dashboard-${name}.svg: ${panels.length} panels, ${Math.round(svg.length / 1024)} KiB`);
}
