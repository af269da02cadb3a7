// Draws the dashboards of the chart with the numbers of a demo, as Prometheus's own engine computes them: `make docs PICTURES=true` writes
// docs/images/dashboard-<name>.svg. Layout, titles and units come from the dashboards' own files.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { docs, repository } from "./pages.mjs";
import { draw, palette } from "./vega.mjs";

const all = JSON.parse(readFileSync(process.argv[2], "utf8"));
const [cell, row, gap] = [44, 26, 6]; // pixels of a grid column and row, and between panels
const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const crop = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

function format(value, unit = "") {
  if (unit.startsWith("percentunit")) return `${Math.round(value * 100)} %`;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const number = value.toLocaleString("en-US", { maximumFractionDigits: digits });
  return unit.startsWith("currency:VND") ? `${number} VND` : unit === "s" ? `${number} s` : number;
}

async function panel(p, series) {
  const unit = p.fieldConfig?.defaults?.unit;
  const [x, y, w, h] = [p.gridPos.x * cell + gap / 2, p.gridPos.y * row + gap / 2 + 34, p.gridPos.w * cell - gap, p.gridPos.h * row - gap];
  let out = `<g transform="translate(${x},${y})"><rect width="${w}" height="${h}" rx="4" fill="#fff" stroke="#e2e8f0"/><text x="8" y="17" font-weight="600" fill="#334155">${escape(crop(p.title, Math.floor(w / 6.6)))}</text>`;
  if (p.type === "stat") {
    const name = /version/i.test(p.title) && series[0]?.name && !series[0].name.startsWith("__") ? series[0].name : undefined;
    const last = series[0]?.points.at(-1)?.[1];
    out += `<text x="${w / 2}" y="${h / 2 + 18}" font-size="${format(last ?? 0, unit).length > 11 ? 17 : 22}" text-anchor="middle" fill="#0f172a">${name ? escape(crop(name, 16)) : last === undefined ? "no data" : format(last, unit)}</text></g>`;
    return out;
  }
  const suffix = unit?.startsWith("currency:VND") ? " VND" : ({ s: " s", reqps: " /s" }[unit] ?? "");
  const stacked = p.fieldConfig?.defaults?.custom?.stacking?.mode === "normal";
  const values = series.flatMap((s) => s.points.map(([t, value]) => ({ t, value, series: s.name === "__auto" || !s.name.trim() ? "value" : crop(s.name, 24) })));
  const columns = Math.max(1, Math.floor(w / 190));
  const legendRows = Math.ceil(Math.min(8, new Set(values.map((v) => v.series)).size) / columns);
  const plot = await draw({
    width: w - 90,
    height: h - 76 - 16 * legendRows,
    data: { values },
    mark: stacked ? { type: "area", interpolate: "step-after", opacity: 0.8 } : { type: "line", interpolate: "step-after", strokeWidth: 1.6 },
    encoding: {
      x: { field: "t", type: "quantitative", title: null, axis: { labelExpr: "datum.label + ' s'", tickCount: 4, grid: false } },
      y: { field: "value", type: "quantitative", title: null, stack: stacked ? "zero" : null, axis: { tickCount: 3, format: unit?.startsWith("percentunit") ? ".0%" : "~s", labelExpr: `datum.label + '${suffix}'` } },
      color: { field: "series", type: "nominal", scale: { range: palette }, legend: { orient: "bottom", title: null, columns, symbolLimit: 8 } },
    },
  });
  return `${out}${plot.replace("<svg ", `<svg x="6" y="26" overflow="visible" `)}</g>`;
}

for (const name of ["fleet-and-cost", "launches", "api-health", "capacity"]) {
  const board = JSON.parse(readFileSync(join(repository, "charts/karpenter-provider-bizflycloud/files/dashboards", `${name}.json`), "utf8"));
  const panels = board.panels.filter((p) => p.gridPos.y < 20); // what fits on a screen
  const height = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h)) * row + 40;
  const body = await Promise.all(panels.map((p) => panel(p, all.filter((s) => s.Dashboard === `${name}.json` && s.Panel === p.title).map((s) => ({ name: s.Name, points: s.Points ?? [] })))));
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${24 * cell} ${height}" font-family="system-ui,sans-serif" font-size="11" role="img"><title>${escape(board.title)}</title><rect width="100%" height="100%" fill="#f8fafc"/><text x="10" y="23" font-size="15" font-weight="600" fill="#0f172a">${escape(board.title)}</text>${body.join("\n")}</svg>\n`;
  writeFileSync(join(docs, "images", `dashboard-${name}.svg`), svg);
  console.log(`docs/images/dashboard-${name}.svg: ${panels.length} panels, ${Math.round(svg.length / 1024)} KiB`);
}
