#!/usr/bin/env bash
# Builds what a real node of the tests runs, each from a module of its own, into .cache/node/bin, and its root file system .cache/node/root from Debian's
# packages: kubelet, kubeadm, kube-proxy, containerd, runc, CNI plugins. It takes 4 minutes once the control plane is built, and needs root on Linux,
# debootstrap and libseccomp-dev.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
node=$PWD/.cache/node
export GOTOOLCHAIN=auto

required() { awk -v module="$2" '$1 == module { print $2; exit }' "test/support/realnode/$1/go.mod"; }
# build MODULE FLAGS...
build() { (cd "test/support/realnode/$1" && CGO_ENABLED=${CGO:-0} go build -trimpath "${@:2}"); }

pkg-config --exists libseccomp || { echo "runc needs libseccomp: apt-get install libseccomp-dev pkg-config"; exit 1; }
echo "building what real nodes run (2 minutes on 2 cores the first time)"
mkdir -p "$node/bin/cni"
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' test/support/realnode/kubernetes/go.mod)
IFS=. read -r major minor _ <<<"${version#v}"
part=k8s.io/component-base/version.git
build kubernetes -o "$node/bin/kubernetes" -ldflags "-s -w -X ${part}Version=$version -X ${part}Major=$major -X ${part}Minor=$minor" .
build containerd -tags 'no_btrfs no_devmapper no_zfs no_aufs' -o "$node/bin/" \
  -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$(required containerd github.com/containerd/containerd/v2)" tool
# The kubelet asks for a seccomp profile for every pod, which runc applies with a C library.
version=$(required runc github.com/opencontainers/runc)
CGO=1 build runc -tags 'netgo osusergo seccomp runc_nodmz' -o "$node/bin/runc" -ldflags "-s -w -extldflags -static -X main.version=${version#v}" github.com/opencontainers/runc
build cni -o "$node/bin/cni/" -ldflags "-s -w" tool
CGO_ENABLED=0 go build -trimpath -o "$node/bin/pause" -ldflags "-s -w" ./test/support/realnode/pause
echo "building the root file system of real nodes (2 minutes the first time, seconds later)"
test/support/realnode/image.sh "$node/bin" "$node/root"
