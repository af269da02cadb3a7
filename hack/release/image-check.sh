#!/usr/bin/env bash
# Builds the image twice with Debian's buildah, compares the two, pushes it to a registry on this machine, and starts the
# controller out of it without privileges against the sandbox and a real control plane. hack/release/buildah.sh says what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=image
# shellcheck source=hack/release/buildah.sh
. hack/release/buildah.sh

# expect compares what the image declares: expect what got wanted
expect() { [[ $2 == "$3" ]] || fail "$1 is \"$2\", expected \"$3\""; }

# digests prints those of the images in a list.
digests() { grep -o '"digest": *"[^"]*"' | cut -d'"' -f4; }

# pushed prints the list that the registry has.
pushed() {
  exec 3<>"/dev/tcp/localhost/$port"
  printf 'GET /v2/karpenter-provider-bizflycloud/manifests/%s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3
  sed '1,/^\r$/d' <&3
  exec 3>&-
}

image=localhost:$port/karpenter-provider-bizflycloud
export VERSION COMMIT IMG=$image

say "building for $PLATFORMS"
build env TAG=first hack/release/image.sh build

# Once more in another folder, at another time.
say "building once more, elsewhere"
mkdir -p "$scratch/elsewhere"
git ls-files -co --exclude-standard -- Dockerfile .dockerignore LICENSE go.mod go.sum cmd internal pkg hack/release/image.sh hack/release/Dockerfile |
  while read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done | xargs cp --parents -t "$scratch/elsewhere"
build env TAG=second "$scratch/elsewhere/hack/release/image.sh" build
expect "the second build's images" "$(buildah manifest inspect "$image:second" | digests)" "$(buildah manifest inspect "$image:first" | digests)"

say "pushing both to a registry on this machine"
for tag in first second; do
  TAG=$tag PUSH_ARGS=--tls-verify=false hack/release/image.sh push 2>"$scratch/push.log" || { cat "$scratch/push.log"; fail "it was not pushed (above)"; }
done
expect "the number of images in the registry" "$(pushed first | digests | wc -l)" 2
expect "what the registry has of the second build" "$(pushed second | digests)" "$(pushed first | digests)"
for arch in amd64 arm64; do
  container=$(buildah from --quiet --pull-always --tls-verify=false --arch "$arch" "docker://$image:first")
  root=$(buildah mount "$container")
  config() { buildah inspect --format "{{$1}}" "$container"; }
  expect "the architecture" "$(config .OCIv1.Architecture)" "$arch"
  expect "the user" "$(config .OCIv1.Config.User)" 65532:65532
  expect "the entrypoint" "$(config .OCIv1.Config.Entrypoint)" "[/karpenter-provider-bizflycloud]"
  expect "the version" "$(config 'index .OCIv1.Config.Labels "org.opencontainers.image.version"')" "$VERSION"
  expect "the commit" "$(config 'index .OCIv1.Config.Labels "org.opencontainers.image.revision"')" "$COMMIT"
  expect "what the layers hold" "$(cd "$root" && find . -type f | sort | grep -v '^./etc/' | tr '\n' ' ')" "./karpenter-provider-bizflycloud ./licenses/LICENSE "
  expect "the binary's architecture" "$(go version -m "$root/karpenter-provider-bizflycloud" | awk '$2 ~ /^GOARCH=/ { print substr($2, 8) }')" "$arch"
  [[ $arch == "$(go env GOHOSTARCH)" ]] && ours=$root
done
[[ -n ${ours:-} ]] || skip "nothing is started: the image is for neither of this machine's architectures"

expect "--version" "$(chroot --userspec=65532:65532 "$ours" /karpenter-provider-bizflycloud --version)" \
  "karpenter-provider-bizflycloud $VERSION (commit $COMMIT, $(go env GOVERSION))"

say "starting it as 65532 against the sandbox and a real control plane"
# What a container would be but for its namespaces: the image's files as the only ones, its user and nothing that only
# root may do. It is this process itself that becomes the controller, so that signals reach it.
cat >"$scratch/controller" <<WRAPPER
#!/bin/sh
set -e
install -o 65532 -g 65532 -m 0400 "\$KUBECONFIG" "$ours/kubeconfig"
KUBECONFIG=/kubeconfig exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups=65532 "$ours" /karpenter-provider-bizflycloud "\$@"
WRAPPER
chmod 755 "$scratch/controller"
IMAGE_CHECK=true CONTROLLER="$scratch/controller" IMAGE_VERSION="$VERSION" IMAGE_COMMIT="$COMMIT" \
  CGO_ENABLED=0 go test -trimpath -count=1 -timeout=5m ./test/e2e/image -ginkgo.v -ginkgo.no-color -ginkgo.poll-progress-after=1m ||
  fail "the controller in the image does not work (above)"
say "passed: $(<.cache/image/digest), built twice with the same digest, pushed, started as 65532"
