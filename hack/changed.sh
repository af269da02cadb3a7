#!/usr/bin/env bash
# Prints the folders whose tests `make presubmit` runs: those of Go packages that differ from a branch, main without one, and the suites of charts and
# pages where those differ. hack/changed.sh [branch]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${1:-$(git rev-parse --verify --quiet origin/main >/dev/null && echo origin/main || echo main)}
base=$(git merge-base "$base" HEAD)
{ git diff --name-only "$base"; git ls-files -o --exclude-standard; } | while read -r file; do
  case $file in
    charts/* | config/*) echo ./test/component/chart ;;
    docs/*.md | *.md) echo ./test/e2e/docs ;;
  esac
  # Test data belongs to the package above it. A run against a real account is never started by the way.
  dir=$(dirname "${file%/testdata/*}")
  [[ $file != */testdata/* ]] || dir=${file%%/testdata/*}
  if ls "$dir"/*_test.go >/dev/null 2>&1 && [[ $dir != test/realcloud && $dir != test/e2e/monitoring ]]; then echo "./$dir"; fi
done | sort -u
