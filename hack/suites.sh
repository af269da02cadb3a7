#!/usr/bin/env bash
# Runs the suites of folders and below, with the race detector and in random order: hack/suites.sh ./internal/operator ./internal -- -v. Those of the
# first folders begin first; what follows "--" are Ginkgo's flags. REPORTS is the folder of their reports, BINARIES that of their binaries, JOBS (two more than processors)
# how many run side by side, because most wait for an API server half of their time. Ginkgo itself would run one after another, and link each again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

roots=()
while (($# > 0)) && [[ $1 != -- ]]; do
  [[ $1 == .* ]] && roots+=("$1") || roots+=("./$1")
  shift
done
shift || true

mapfile -t suites < <(for root in "${roots[@]}"; do
  find "$root" -name '*_test.go' -not -path '*/testdata/*' -not -path '*/node_modules/*' -printf '%h\n' | sort -u | shuf
done | awk '!listed[$0]++')
((${#suites[@]})) || { echo "no tests in ${roots[*]}"; exit 1; }

# module_of is the folder of the module that a suite belongs to.
module_of() {
  local module=$1
  until [[ -e $module/go.mod ]]; do module=${module%/*}; done
  echo "$module"
}

# run links one suite, unless its last binary is that of the same code, and runs it. To ask go for each costs a tenth of all that the suites need
# of the processor. Without debugging information, each binary links in two thirds of the time. Traces are the same.
run() {
  local suite=$1 module name flags status=0
  shift
  module=$(module_of "$suite")
  name=$(tr / - <<<"${suite#./}")
  if [[ ! -x $BINARIES/$name.test ]] || ! cmp -s "$CODE/$name" "$BINARIES/$name.code"; then
    rm -f "$BINARIES/$name.code"
    (cd "$module" && go test -c -race -ldflags=-w -o "$BINARIES/$name.test" ".${suite#"$module"}") || return
    # What has changed since go listed it may be in the binary.
    if [[ -s $CODE/$name && -z $(find . \( -path ./.cache -o -path ./.git -o -name node_modules \) -prune -o -type f -newer "$CODE/begun" -print -quit) ]]; then
      cp "$CODE/$name" "$BINARIES/$name.code"
    fi
  fi
  flags=(--randomize-all --timeout=60m --poll-progress-after=2m --json-report="$REPORTS/specs-$name.json" "$@")
  flags=("${flags[@]/#--/-}")
  flags=("${flags[@]/#-/-ginkgo.}")
  grep -qs onsi/ginkgo "$suite"/*_test.go || flags=()
  rm -f "$REPORTS/specs-$name.json"
  (cd "$suite" && "$BINARIES/$name.test" "${flags[@]}") || status=$?
  # Without a function that runs them, or with one that returns before, Go passes a package of which no spec has run.
  if ((status == 0 && ${#flags[@]})) && [[ ! -s $REPORTS/specs-$name.json ]]; then
    echo "$suite has run no specs: Ginkgo has written no report"
    status=1
  fi
  [[ -z ${CI:-} ]] || rm "$BINARIES/$name.test" # of 4 GB in all, for one run
  return "$status"
}

# later runs one suite and prints what it said when it has ended, so that outputs do not mix.
later() {
  local log status=0
  log=$(mktemp)
  run "$@" >"$log" 2>&1 || status=$?
  cat "$log"
  rm "$log"
  return "$status"
}

# code writes for each suite that go lists the build IDs of all its packages, by which the code of one run is told from that of another.
code() {
  local module=$1 dir ids
  (cd "$module" && go list -e -race -deps -test -export -f '{{.ImportPath}}|{{.BuildID}}|{{if eq .Name "main"}}{{.Dir}}|{{join .Deps "\t"}}{{end}}' "${@:2}") |
    awk -F '|' '{ id[$1] = $2 } NF == 4 && $1 ~ /[.]test$/ { dir[$1] = $3; deps[$1] = $4 }
      END {
        for (suite in deps) {
          printf "%s\t%s", dir[suite], id[suite]
          n = split(deps[suite], of, "\t")
          for (i = 1; i <= n; i++) printf " %s", id[of[i]]
          print ""
        }
      }' |
    while IFS=$'\t' read -r dir ids; do tr / - <<<"${dir#"$PWD"/}" | { read -r name && echo "$ids" >"$CODE/$name"; }; done
}

CODE=$(mktemp -d)
trap 'rm -r "$CODE"' EXIT
touch "$CODE/begun"
export CODE
if ((${#suites[@]} == 1)); then
  run "${suites[0]}" "$@"
  exit
fi
# A go command for each suite would compile what they share as often as commands run side by side. What does not compile, each suite reports.
declare -A packages
for suite in "${suites[@]}"; do
  module=$(module_of "$suite")
  packages[$module]+=" .${suite#"$module"}"
done
for module in "${!packages[@]}"; do
  # shellcheck disable=SC2086 # a list of folders
  code "$module" ${packages[$module]}
done
export -f module_of run later
export REPORTS BINARIES GOGC="${GOGC:-400}" # a tenth of the processor's time for some memory
printf '%s\n' "${suites[@]}" | xargs -P "${JOBS:-$(($(getconf _NPROCESSORS_ONLN) + 2))}" -I{} bash -c 'later "$@"' later {} "$@"
