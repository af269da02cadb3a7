#!/usr/bin/env bash
# Builds one tool into .cache/tools: hack/tools/build.sh NAME. While its line below, its module and Go are as they were, it does and prints nothing.
# What it downloads is checked against the Go checksum database, or against go.sum where a tool has a module here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The name, the package and its version, CGO_ENABLED, and more flags of go install. Vale's parsers are C; its next versions need what the module proxy lacks.
TOOLS='
actionlint      github.com/rhysd/actionlint/cmd/actionlint@v1.7.12                    0
controller-gen  sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0               0
crane           github.com/google/go-containerregistry/cmd/crane@v0.22.1              0
golangci-lint   github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0        0  -ldflags=-s
govulncheck     golang.org/x/vuln/cmd/govulncheck@v1.7.0                              0
helm-docs       github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2                   0
registry        github.com/google/go-containerregistry/cmd/registry@v0.22.1           0
vale            github.com/vale-cli/vale/v3/cmd/vale@v3.22.0                          1  -ldflags=-s
'
# These have modules of their own: Helm shares its k8s.io/* with the controller, so that both are compiled once, and cosign comes with what stands
# in for Sigstore's services in a rehearsal of a release.
MODULES='
helm     hack/tools/helm    helm.sh/helm/v3/cmd/helm
cosign   hack/tools/cosign  github.com/sigstore/cosign/v2/cmd/cosign
sigstore hack/tools/cosign  ./sigstore
'

name=${1:-} bin=$PWD/.cache/tools
row=$(awk -v name="$name" 'name != "" && $1 == name' <<<"$TOOLS$MODULES")
[[ -n $row ]] || { echo "usage: hack/tools/build.sh $(awk 'NF { printf "%s%s", s, $1; s = "|" }' <<<"$TOOLS$MODULES")" >&2; exit 2; }
read -r _ package cgo flags <<<"$row"
go=$(GOTOOLCHAIN=auto go env GOVERSION)
inputs="$row $go"
ldflags=-s
if [[ $package == hack/* ]]; then
  module=$package package=$cgo cgo=0
  inputs+=" $(find "$module" -type f | sort | xargs git hash-object | tr '\n' ' ')"
  if [[ $name == helm ]]; then
    # Helm would otherwise report an old Kubernetes.
    version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' test/support/controlplane/go.mod)
    for part in chartutil lint/rules; do
      ldflags+=" -X helm.sh/helm/v3/pkg/$part.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$part.k8sVersionMinor=$(cut -d. -f2 <<<"$version")"
    done
    ldflags+=" -X helm.sh/helm/v3/internal/version.version=$(awk '$1 == "helm.sh/helm/v3" { print $2; exit }' "$module/go.mod")"
    inputs+=" $ldflags"
  fi
fi
stamp=$bin/.$name
[[ ! -x $bin/$name || ! -f $stamp || $(<"$stamp") != "$inputs" ]] || exit 0

echo "building $name (a few minutes on 2 cores the first time)" >&2
mkdir -p "$bin"
# Another build of the same tool may run: each replaces the file at once.
work=$(mktemp -d "$bin/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
# go install ignores the go.mod of this folder, but not its Go.
export GOTOOLCHAIN=$go+auto CGO_ENABLED=$cgo GOBIN=$work
if [[ -n ${module:-} ]]; then
  GOTOOLCHAIN=auto go -C "$module" build -trimpath -ldflags "$ldflags" -o "$work/$name" "$package"
else
  # shellcheck disable=SC2086
  go install -trimpath $flags "$package"
fi
mv "$work/$name" "$bin/$name"
printf '%s\n' "$inputs" >"$stamp"
