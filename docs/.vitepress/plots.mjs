// Draws the plot of docs/concepts/cost.md from the results of `make bench WHAT=bill`: the build writes docs/images/cost.svg.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { docs, repository } from "./pages.mjs";
import { draw, palette } from "./vega.mjs";

const days = JSON.parse(readFileSync(join(repository, "test/measure/bill/results.json"), "utf8")).day;
const sum = (way, field) => days.reduce((total, day) => total + day.ways[way][field], 0);
const policies = {
  "underutilized-30s": "WhenEmptyOrUnderutilized, 30s",
  "underutilized-10m": "WhenEmptyOrUnderutilized, 10m",
  "balanced-30s": "Balanced, 30s",
  "balanced-5m": "Balanced, 5m",
  "balanced-10m": "Balanced, 10m",
  "empty-30s": "WhenEmpty, 30s",
  "pool-best": "pool of the best flavor",
  "pool-8c_16g": "pool of 8c_16g",
};
const cases = ["by the second", "by started hours", "by started hours, with billingPeriod: 1h"];
const bars = Object.entries(policies).flatMap(([way, policy]) => [
  { policy, billed: cases[0], vnd: sum(way, "vnd") },
  { policy, billed: cases[1], vnd: sum(way, "vnd_by_hours") },
  ...(days[0].ways[`${way}-1h`] ? [{ policy, billed: cases[2], vnd: sum(`${way}-1h`, "vnd_by_hours") }] : []),
]);

const svg = await draw({
  title: "What three days of workloads cost, in VND, by how servers are billed",
  width: 560,
  height: { step: 13 },
  data: { values: bars },
  encoding: {
    y: { field: "policy", type: "nominal", sort: null, title: null },
    yOffset: { field: "billed", type: "nominal", sort: cases },
    x: { field: "vnd", type: "quantitative", title: null, axis: { format: ",d", tickCount: 5 } },
  },
  layer: [
    { mark: { type: "bar" }, encoding: { color: { field: "billed", type: "nominal", sort: cases, scale: { range: palette }, legend: { orient: "top", title: null, columns: 3 } } } },
    { mark: { type: "text", align: "left", dx: 4, fontSize: 10 }, encoding: { text: { field: "vnd", type: "quantitative", format: ",.0f" } } },
  ],
});
writeFileSync(join(docs, "images/cost.svg"), svg);
