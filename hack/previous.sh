#!/usr/bin/env bash
# Builds the controller of an earlier commit, which the upgrade spec starts first, and puts its custom resource definitions into
# <binary>-crds: hack/previous.sh <commit> <binary>.
# The commit comes from the repository's history, and from its origin where the clone is a shallow one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

commit=$1 binary=$2
git cat-file -e "$commit^{commit}" 2>/dev/null || git fetch --quiet --depth=1 origin "$commit"
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git archive "$commit" go.mod go.sum cmd internal pkg | tar -x -C "$source"
mkdir -p "$(dirname "$binary")"
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
rm -rf "$binary-crds" && cp -r "$source/pkg/apis/crds" "$binary-crds"
cd "$source"
GOFLAGS=-mod=readonly GOTOOLCHAIN=auto CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$binary" ./cmd/controller
