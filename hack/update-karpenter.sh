#!/usr/bin/env bash
# Moves Karpenter core to a version, and with it everything that must equal what core is compiled against, in all modules:
#
#	hack/update-karpenter.sh v1.16.0            core, controller-runtime, operatorpkg, k8s.io/* and the control plane of core's minor
#	hack/update-karpenter.sh v1.16.0 v1.37.1    the same with this patch of Kubernetes instead of the newest that can be had
#	hack/update-karpenter.sh oldest v1.31.14    only that control plane (so does newest)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=auto GOFLAGS=-mod=mod

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
# required MODULE prints the version that the go.mod on standard input requires.
required() { awk -v module="$1" '$1 == "require" { $0 = substr($0, 9) } $1 == module { print $2; exit }'; }
gomod() { cat "$(go mod download -json "$1" | sed -n 's/^.*"GoMod": "\(.*\)",$/\1/p')"; }

# move DIR FROM KUBERNETES [MODULE@VERSION ...] moves what the module in DIR requires of a version of k8s.io/*, and of the other modules, if it
# requires them. What has k8s.io/* of its own (cosign) stays.
move() {
  local dir=$1 from=$2 kubernetes=$3 staging=v0.${3#v1.} edits=() module
  shift 3
  # The module asks for its staging modules at v0.0.0, so that each of them is replaced where it is required.
  if grep -q '^\s*k8s\.io/kubernetes ' "$dir/go.mod"; then
    edits+=(-require="k8s.io/kubernetes@$kubernetes")
    while read -r module; do edits+=(-dropreplace="$module"); done < <(awk '$1 ~ /^k8s\.io\// && $2 == "=>" { print $1 }' "$dir/go.mod" | grep -vxF "$staged")
    while read -r module; do edits+=(-replace="$module=$module@$staging"); done <<<"$staged"
  fi
  while read -r module; do edits+=(-require="$module@$staging"); done < <(awk -v from="$from" '
    $1 == "require" { $0 = substr($0, 9) } NR == FNR { staged[$1]; next } $1 in staged && $2 == from { print $1 }' <(cat <<<"$staged") "$dir/go.mod")
  for module in "$@"; do
    [[ -z $(required "${module%@*}" <"$dir/go.mod") ]] || edits+=(-require="$module")
  done
  ((${#edits[@]})) || return 0
  (cd "$dir" && go mod edit "${edits[@]}" && go mod tidy)
}

[[ ${2:-v1.0.0} =~ ^v1\.[0-9]+\.[0-9]+$ ]] || usage
# staged lists the modules that are released together with Kubernetes, under versions v0.
staged_of() { gomod "k8s.io/kubernetes@$1" | awk '$2 == "=>" && $3 ~ /^\.\/staging\// { print $1 }'; }
case ${1:-} in
  oldest | newest)
    [[ -n ${2:-} ]] || usage
    staged=$(staged_of "$2")
    move "test/support/controlplane/$1" "$(required k8s.io/component-base <"test/support/controlplane/$1/go.mod")" "$2"
    ;;
  v[0-9]*)
    core=$(gomod "sigs.k8s.io/karpenter@$1")
    kubernetes=${2:-}
    if [[ -z $kubernetes ]]; then
      minor=$(required k8s.io/api <<<"$core")
      minor=${minor%.*}
      # Some patches of the staging modules are without a k8s.io/kubernetes in the module proxy.
      for version in $(go list -m -versions k8s.io/api | tr ' ' '\n' | grep -xE "${minor//./\\.}\.[0-9]+" | sort -rV); do
        kubernetes=v1.${version#v0.}
        ! go mod download "k8s.io/kubernetes@$kubernetes" 2>/dev/null || break
      done
    fi
    staged=$(staged_of "$kubernetes") from=$(required k8s.io/api <go.mod)
    echo "Karpenter $1 with Kubernetes $kubernetes"
    while read -r file; do
      [[ $file == */oldest/go.mod || $file == */newest/go.mod ]] || move "$(dirname "$file")" "$from" "$kubernetes" "sigs.k8s.io/karpenter@$1" \
        "sigs.k8s.io/controller-runtime@$(required sigs.k8s.io/controller-runtime <<<"$core")" \
        "github.com/awslabs/operatorpkg@$(required github.com/awslabs/operatorpkg <<<"$core")"
    done < <(echo go.mod; git ls-files -- '**/go.mod') # others require the root's
    [[ $(required sigs.k8s.io/karpenter <go.mod) == "$1" ]] ||
      { echo "go.mod has another Karpenter than $1: the code imports packages that $1 lacks (above)" >&2; exit 1; }
    echo "moved. What follows: make generate verify test (docs/contribute/release.md)"
    ;;
  *) usage ;;
esac
