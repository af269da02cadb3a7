#!/usr/bin/env bash
# Builds the archives of the kubectl plugin and its Krew manifest into dist/plugin: hack/release/plugin.sh v1.2.3 [os/arch ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:-}
[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "usage: hack/release/plugin.sh v<major>.<minor>.<patch>[-<pre-release>] [os/arch ...]" >&2; exit 2; }
shift
platforms=("$@")
((${#platforms[@]})) || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)
module=github.com/bizflycloud/karpenter-provider-bizflycloud
url=https://github.com/bizflycloud/karpenter-provider-bizflycloud/releases/download/$tag
dist=dist/plugin
# The time of the commit, so that the same sources make the same archives.
stamp=$(git log -1 --format=%ct 2>/dev/null || echo 0)

rm -rf "$dist" && mkdir -p "$dist"
manifest=$dist/bizfly.yaml
cat >"$manifest" <<YAML
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: bizfly
spec:
  version: $tag
  homepage: https://github.com/bizflycloud/karpenter-provider-bizflycloud
  shortDescription: Cost, health and pending pods of Karpenter on BizFly Cloud
  description: |
    Computes what Karpenter would run on BizFly Cloud and what it costs, checks an installation, and explains why a pod is
    pending, with the controller's own code. Only pool pin --yes changes something, a worker pool of BKE, and
    repack --yes creates NodeClaims, Jobs and pods.
  platforms:
YAML
for platform in "${platforms[@]}"; do
  os=${platform%/*} arch=${platform#*/} binary=kubectl-bizfly
  [[ $os != windows ]] || binary+=.exe
  work=$dist/$os-$arch
  mkdir -p "$work"
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -C cmd/kubectl-bizfly -trimpath -o "$PWD/$work/$binary" \
    -ldflags "-s -w -X sigs.k8s.io/karpenter/pkg/operator.Version=${tag#v} -X $module/internal/operator.commit=$(git rev-parse --short=7 HEAD)" .
  cp LICENSE "$work/"
  # kubectl runs it to complete the arguments of "kubectl bizfly".
  [[ $os == windows ]] || install -m 755 /dev/stdin "$work/kubectl_complete-bizfly" <<<$'#!/bin/sh\nexec kubectl-bizfly __complete "$@"'
  archive=kubectl-bizfly_${tag}_${os}_${arch}.tar.gz
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$stamp" -C "$work" -cf - . | gzip -n >"$dist/$archive"
  rm -r "$work"
  cat >>"$manifest" <<YAML
    - selector:
        matchLabels: {os: $os, arch: $arch}
      uri: $url/$archive
      sha256: $(sha256sum "$dist/$archive" | cut -d' ' -f1)
      bin: $binary
YAML
done
ls -l "$dist"
