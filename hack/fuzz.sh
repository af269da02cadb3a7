#!/usr/bin/env bash
# Searches with each fuzz target for FUZZTIME, and names the input of one that fails. `make fuzz` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=$(grep -rnoE '^func Fuzz[A-Za-z]+' --include='*_test.go' internal cmd | sed -E 's#^([^:]*)/[^/:]*:[0-9]+:func (.*)#\1 \2#')
[[ -n $targets ]] || { echo "there is no target to fuzz"; exit 1; }
while read -r dir name; do
  echo "--- $name of $dir"
  # Before 1.27, Go may take the end of the time for a failure (golang/go#75804). A failure that it finds names an input.
  (cd "$dir" && go test -run='^$' -fuzz="^$name\$" -fuzztime="${FUZZTIME:-30s}" .) 2>&1 | tee "$log" ||
    { grep -qx ' *context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; }
done <<<"$targets"
