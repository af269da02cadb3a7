#!/usr/bin/env bash
# Builds what the tests run as a cluster, side by side: build.sh [current|oldest|newest] [kwok]. The control planes are those of the modules here, of the
# Kubernetes that the controller is compiled against and of the oldest and newest that the tests know. It prints nothing where nothing has changed.
# The contents of its sources decide, so that a fresh checkout of the same ones builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=$(cd ../../.. && pwd)/.cache
go=$(GOTOOLCHAIN=auto go env GOVERSION)
export GOTOOLCHAIN=auto CGO_ENABLED=0

required() { awk -v module="$2" '$1 == module { print $2; exit }' "$1/go.mod"; }

# build DIR BINARY SUBJECT TIME FLAGS...: builds the package that the last flag names in the module of a folder.
build() {
  local dir=$1 binary=$2 subject=$3 time=$4 sources
  shift 4
  sources="$go $* $(find "$dir" -maxdepth 1 \( -name 'go.*' -o -name '*.go' \) | LC_ALL=C sort | xargs cat | git hash-object --stdin)"
  [[ ! -x $binary || $(cat "$binary.built" 2>/dev/null) != "$sources" ]] || return 0
  echo "building $subject ($time on 2 cores the first time, seconds later)"
  mkdir -p "${binary%/*}"
  (cd "$dir" && go build -trimpath -o "$binary" "$@")
  echo "$sources" >"$binary.built"
}

# controlplane DIR FOLDER TIME FLAGS...: one binary is all components, which are told apart by its name.
controlplane() {
  local dir=$1 bin=$cache/$2/bin time=$3 version part name
  shift 3
  version=$(required "$dir" k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  part=k8s.io/component-base/version.git
  build "$dir" "$bin/controlplane" "the Kubernetes $version control plane of the tests" "$time" "$@" \
    -ldflags "-s -w -X ${part}Version=$version -X ${part}Major=$major -X ${part}Minor=$minor" .
  # A link that is new has another time, with which go test's cache would forget the suites that start a control plane.
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    [[ $(readlink "$bin/$name") == controlplane ]] || ln -sfn controlplane "$bin/$name"
  done
}

pids=()
for what; do
  case $what in
    current) controlplane . controlplane "6 to 11 minutes" & ;;
    # It shares no package with the other one. Without the tag, it has the clients of clouds that Kubernetes still had inside.
    oldest) controlplane oldest controlplane-oldest "4 to 9 minutes" -tags providerless & ;;
    newest) controlplane newest controlplane-newest "6 to 11 minutes" & ;;
    kwok)
      version=$(required kwok sigs.k8s.io/kwok)
      build kwok "$cache/controlplane/bin/kwok" "KWOK $version" "3 minutes" -ldflags "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$version" sigs.k8s.io/kwok/cmd/kwok &
      ;;
    *) echo "usage: build.sh [current|oldest|newest] [kwok]" >&2; exit 2 ;;
  esac
  pids+=($!)
done
status=0
for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || status=$?; done
exit $status
