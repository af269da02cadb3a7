#!/usr/bin/env bash
# Checks everything that needs neither a cluster nor a cloud, all of it even if something fails, and lists at the end what failed.
# `make verify` runs it; some checks: make verify ONLY='headers words', or hack/verify.sh where the tools are built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GOLANGCI_LINT=${GOLANGCI_LINT:-.cache/tools/golangci-lint}
ACTIONLINT=${ACTIONLINT:-.cache/tools/actionlint}
HELM=${HELM:-.cache/tools/helm}

modules() {
  git ls-files -co --exclude-standard -- 'go.mod' '**/go.mod' | xargs -n1 dirname
}

# present lists the files of the tree that git does not ignore. One that was deleted is still in its index.
present() {
  git ls-files -co --exclude-standard -- "$@" | while read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done
}

# sources lists the files that we wrote: the definitions that are copied from Karpenter core are not ours.
sources() {
  present "$@" | grep -Ev '(^|/)(karpenter\.sh|autoscaling\.x-k8s\.io)_[a-z]+\.yaml$|(^|/)go\.sum$|^LICENSE$'
}

# contents lists every file of the tree with its contents, so that nothing that `make generate` writes has to be listed.
contents() {
  local files
  files=$(present)
  paste <(printf '%s\n' "$files") <(git hash-object --stdin-paths <<<"$files")
}

check_generated() {
  local before after
  before=$(contents)
  hack/generate.sh >/dev/null
  after=$(contents)
  if [[ $before != "$after" ]]; then
    diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") || true
    echo "generated files were out of date: commit what \`make verify\` has just written"
    return 1
  fi
}

check_chart() {
  local chart values
  for chart in charts/*/; do
    "$HELM" lint --strict --quiet "$chart"
    for values in "$chart"ci/*-values.yaml; do
      [[ ! -f $values ]] || "$HELM" lint --strict --quiet "$chart" --values "$values"
    done
  done
}

check_format() {
  "$GOLANGCI_LINT" fmt --diff || { echo "run \`make fmt\`"; return 1; }
}

check_workflows() {
  "$ACTIONLINT" -shellcheck= -pyflakes=
}

check_prose() {
  hack/prose.sh || { echo "reword what is listed (the glossary has the terms), or see .vale.ini"; return 1; }
}

check_vet() {
  go vet ./...
  (cd cmd/kubectl-bizfly && go vet ./...)
}

check_lint() {
  local linter
  linter=$(realpath "$GOLANGCI_LINT")
  "$linter" run
  (cd cmd/kubectl-bizfly && "$linter" run)
}

check_modules() {
  local dir failed=0
  while read -r dir; do
    (cd "$dir" && go mod verify >/dev/null && go mod tidy -diff) || { echo "module in $dir: see above (\`go mod tidy\` there fixes a difference)"; failed=1; }
  done < <(modules)
  return $failed
}

# The control plane of the tests is of the version that the controller is compiled against, as core's suites and the plugin are.
# These and Helm share one build cache with the controller only while each of these is equal.
check_versions() {
  local module oldest file failed=0
  for module in cmd/kubectl-bizfly/go.mod test/support/controlplane/go.mod test/support/realnode/kubernetes/go.mod test/e2e/core/suites/go.mod hack/tools/helm/go.mod; do
    compare_versions go.mod "$module" || failed=1
  done
  # What the charts and the plugin admit is the minor that the tests run on, from its first patch. The tests run on its last one.
  oldest=$(awk '$1 == "k8s.io/kubernetes" { split(substr($2, 2), v, "."); print v[1] "." v[2] ".0"; exit }' test/support/controlplane/oldest/go.mod)
  for file in charts/*/Chart.yaml; do
    grep -qxF "kubeVersion: \">=$oldest-0\"" "$file" || { echo "kubeVersion of $file is not that of test/support/controlplane/oldest: >=$oldest-0"; failed=1; }
  done
  # An older builder fetches the Go of go.mod. A newer one would compile with a Go that nothing here was tested with.
  local builder go
  builder=$(sed -n 's|^FROM .*/golang:\([0-9.]*\)-.* AS builder$|\1|p' hack/release/Dockerfile) go=$(sed -n 's/^go //p' go.mod)
  [[ $(printf '%s\n' "${builder:-none}" "$go" | sort -V | tail -n 1) == "$go" ]] ||
    { echo "Go of the builder in hack/release/Dockerfile is ${builder:-not found}, newer than $go of go.mod: go get go@$builder"; failed=1; }
  file=cmd/kubectl-bizfly/internal/rules/cluster.go
  grep -qxF "const minimumVersion = \"$oldest\"" "$file" || { echo "minimumVersion of $file is not that of test/support/controlplane/oldest: $oldest"; failed=1; }
  return $failed
}

compare_versions() {
  awk '
    FNR == 1 { file++ }
    $1 == "replace" || $1 == "require" { sub(/^(replace|require) /, "") }
    $1 !~ /^k8s\.io\// && $1 !~ /^sigs\.k8s\.io\/(karpenter|controller-runtime)$/ { next }
    file == 1 { main[$1] = $2 }
    file == 2 && $2 == "=>" { other[$1] = $4; replaced[$1] = 1 }
    file == 2 && $2 != "=>" && !replaced[$1] { other[$1] = $2 }
    END {
      for (path in main) if (path in other && main[path] != other[path]) {
        printf "%s is %s in %s and %s in %s: make them equal\n", path, main[path], ARGV[1], other[path], ARGV[2]
        failed = 1
      }
      exit failed
    }' "$1" "$2"
}

check_headers() {
  local file header length failed=0
  header=$(<hack/boilerplate.go.txt)
  length=$(wc -l <hack/boilerplate.go.txt)
  while read -r file; do
    # A build constraint may stand above it.
    if [[ $(sed -e '1,/^$/{/^\/\/go:build /,/^$/d' -e '}' "$file" | head -n "$length") != "$header" ]]; then
      echo "$file does not begin with the text of hack/boilerplate.go.txt"
      failed=1
    fi
  done < <(sources '*.go')
  return $failed
}

check_words() {
  # Taken apart, or this file would find itself.
  local words='TO''DO|FIX''ME|XX''X|HA''CK'
  if sources | xargs grep -InwE "$words"; then
    echo "unfinished work: do it, or open an issue and remove the mark"
    return 1
  fi
}

# lane runs checks one after the other and notes those that fail.
lane() {
  local check start status result
  for check in "$@"; do
    start=$SECONDS
    printf '%s\n' "--- $check"
    # A subshell with set -e of its own: inside an if or an || it would be ignored.
    set +e
    (set -e; "check_$check")
    status=$?
    set -e
    ((status == 0)) && result=ok || { result=FAILED; echo "$check" >>"$work/failed"; }
    printf '%s\n' "--- $check: $result ($((SECONDS - start)) s)"
  done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if (($#)); then
  lane "$@"
else
  # It writes what the others read. Then what waits for the network and the disk, or uses one core, runs beside what computes.
  lane generated
  lane headers words workflows versions modules prose chart >"$work/beside" 2>&1 &
  beside=$!
  lane format lint vet
  wait "$beside"
  cat "$work/beside"
fi
if [[ -f $work/failed ]]; then
  echo "verify: failed: $(paste -sd' ' "$work/failed")"
  exit 1
fi
echo "verify: all checks passed"
