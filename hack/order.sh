#!/usr/bin/env bash
# Runs suites in random orders, and each of their top-level containers alone, so that no spec needs what another has left:
# hack/order.sh ./internal/providers/... ./test/measure/demo. ORDERS (10) is the number of orders, SEED (1) the first, PROCS (1) the number of
# processes, LABEL that of the specs to run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# suite runs the suite of $dir: suite what flags...
suite() {
  local what=$1
  shift
  if (if [[ ${PROCS:-1} == 1 ]]; then
    cd "$dir" && "$work/suite.test" -ginkgo.label-filter="${LABEL:-}" -ginkgo.randomize-all -ginkgo.fail-on-empty -ginkgo.no-color "${@/#/-ginkgo.}"
  else
    .cache/bin/ginkgo run --procs="$PROCS" --label-filter="${LABEL:-}" --randomize-all --fail-on-empty --no-color "${@/#/--}" "$dir"
  fi) >"$work/log" 2>&1; then
    echo "passed: $dir $what"
  else
    failed=$((failed + 1))
    cat "$work/log"
    echo "FAILED: $dir $what: ginkgo run --randomize-all ${*/#/--} $dir"
  fi
}

# suites lists the folders of suites, also those of the modules below a folder: suites ./cmd/... ./test/measure/demo
suites() {
  local root module
  for root in "$@"; do
    while read -r module; do
      (cd "$module" && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "./${root#"${root%...}"}")
    done < <(printf '%s\n' "${root%/...}"; [[ $root != */... ]] || find "${root%/...}" -mindepth 2 -name go.mod -printf '%h\n')
  done
}

for dir in $(suites "$@"); do
  dir=${dir/#$PWD/.}
  (cd "$dir" && go test -c -o "$work/suite.test" .)
  rm -f "$work/dry.json"
  (cd "$dir" && "$work/suite.test" -ginkgo.dry-run -ginkgo.label-filter="${LABEL:-}" -ginkgo.json-report="$work/dry.json") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  [[ -f $work/dry.json ]] || { echo "skipped: $dir starts no specs here"; continue; }
  for ((seed = ${SEED:-1}; seed < ${SEED:-1} + ${ORDERS:-10}; seed++)); do
    suite "in order $seed" "seed=$seed"
  done
  # The first location of each spec is that of its top-level container.
  while read -r container; do suite "alone: $container" "focus-file=$container"; done < <(
    tr -d ' \n' <"$work/dry.json" |
      grep -oP '"ContainerHierarchyLocations":\[\{"FileName":"[^"]*","LineNumber":\d+(?=((?!"ContainerHierarchyLocations").)*?"State":"passed")' |
      sed 's/.*"FileName":"\([^"]*\)","LineNumber":/\1:/; s|.*/||' | sort -u)
done
((failed == 0)) || { echo "$failed runs failed"; exit 1; }
