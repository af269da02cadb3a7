#!/usr/bin/env bash
# Draws the recording of a demo, and the dashboards with its numbers, into docs/images: `make docs PICTURES=true`. Grafana is not needed: the numbers are
# those of Prometheus's own engine, the layout is that of the chart's files. Each run draws other numbers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=$PWD/.cache
mkdir -p "$cache" && rm -f "$cache/panels.json"
"${MAKE:-make}" --no-print-directory demo | tee "$cache/demo.log"
PANELS=$cache/panels.json "${MAKE:-make}" --no-print-directory e2e SUITE=monitoring
cd docs/.vitepress
node demo.mjs "$cache/demo.log" && node dashboards.mjs "$cache/panels.json"
