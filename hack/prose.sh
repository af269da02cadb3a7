#!/usr/bin/env bash
# Checks the prose that users read with Vale: documentation, comments of chart values, alerts, dashboards, and API descriptions. `make verify` runs it.
# hack/prose.sh FILE... checks only these, once `make verify ONLY=prose` has built Vale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VALE=${VALE:-.cache/tools/vale}
comments=.cache/prose

# Comments of values become Markdown with the line numbers of the values; what is commented out is left out.
rm -rf "$comments" && mkdir -p "$comments"
for values in charts/*/values.yaml; do
  chart=${values%/values.yaml}
  awk '{ if (sub(/^ *# ?/, "") && !/^[ @]/) { sub(/^-- /, ""); print } else print "" }' "$values" >"$comments/${chart##*/}-values.yaml.md"
done

# So do the words of alerts and dashboards.
for words in charts/*/files/alerts.yaml charts/*/files/dashboards/*.json; do
  sed -E "s/^ *\"?(title|summary|description)\"?: ['\"](.*)['\"],?\$/\2/; t values; s/.*//; :values s/\{\{[^}]*\}\}/1/g" "$words" >"$comments/$(basename "$words").md"
done

if (($#)); then
  "$VALE" --no-global --output=line "$@"
  exit
fi
# The changelog is history.
git ls-files -co --exclude-standard -z -- '*.md' ':!CHANGELOG.md' ':!*.vi.md' ':!docs/vi' 'pkg/apis/crds/karpenter.bizflycloud.vn_*.yaml' |
  xargs -0 "$VALE" --no-global --output=line "$comments"/*.md
