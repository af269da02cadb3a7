// Draws with Vega-Lite, in the site's font, in colours that are read on white and on black. Texts have no limit: without a browser their width is a guess.
import * as vega from "vega";
import { compile } from "vega-lite";

export const palette = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#ec4899", "#84cc16", "#f97316", "#64748b"];
const text = "#7c8594";
const font = "Inter, system-ui, sans-serif";

/** draw returns the SVG of a specification; its configuration adds to the site's. */
export async function draw({ config: own = {}, ...spec }) {
  const config = {
    background: null,
    font,
    title: { color: text, font, fontSize: 14, anchor: "start" },
    axis: { labelColor: text, titleColor: text, labelFontSize: 12, labelLimit: 0, domainColor: text, tickColor: text, gridColor: "#8884" },
    legend: { labelColor: text, titleColor: text, labelFontSize: 12, labelLimit: 0 },
    text: { color: text },
    view: { stroke: null },
    ...own,
  };
  const view = new vega.View(vega.parse(compile({ ...spec, config }).spec), { renderer: "none" });
  return `${await view.toSVG()}\n`;
}
