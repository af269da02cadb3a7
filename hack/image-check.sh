#!/usr/bin/env bash
# Builds the image twice with Debian's buildah, compares the two, pushes it to a registry on this machine, and starts the
# controller out of it without privileges against the sandbox and a real control plane. Needs root on Linux, and no daemon, no
# registry and no image of others: the bases are made here, out of the Go toolchain and the certificates of the machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${REGISTRY_BIN:?the registry that make builds}"
say() { printf '%s\n' "--- image: $*"; }
skip() { say "skipped: $*"; exit 0; }

[[ $(uname -s) == Linux ]] || skip "buildah runs on Linux only"
((EUID == 0)) || skip "not root: a build without a daemon needs it for its chroot"
unshare --mount true 2>/dev/null || skip "root may not mount here, as in most containers"
if ! command -v buildah >/dev/null; then
  command -v apt-get >/dev/null || skip "there is no buildah and no apt-get to install it with"
  say "installing buildah"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends buildah; } >.cache/image-apt.log 2>&1 ||
    { tail -n 20 .cache/image-apt.log; skip "apt-get could not install buildah (above)"; }
fi

work=$(mktemp -d)
# Storage of its own, so that it leaves nothing behind and sees nothing of yours. Everything needs these.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF=$work/storage.conf
cat >"$work/storage.conf" <<CONF
[storage]
driver = "vfs"
graphroot = "$work/root"
runroot = "$work/run"
CONF
registry=
cleanup() {
  [[ -z $registry ]] || kill "$registry" 2>/dev/null || true
  buildah umount --all >/dev/null 2>&1 || true
  buildah rm --all >/dev/null 2>&1 || true
  # Mounts below it are in use: Go's caches, while a build runs.
  if grep -qF " $work/" /proc/self/mounts; then
    say "something is still mounted in $work: it is left there"
  else
    rm -rf "$work"
  fi
}
trap cleanup EXIT

# base makes an image of what is put into its folder: base name arch files...
base() {
  local name=$1 arch=$2 container
  container=$(buildah from scratch)
  cp -a "$work/$name/." "$(buildah mount "$container")/"
  buildah umount "$container" >/dev/null
  buildah config --os linux --arch "$arch" "${@:3}" "$container"
  buildah commit --quiet --rm --timestamp "$SOURCE_DATE_EPOCH" "$container" "localhost/$name-$arch" >/dev/null
}

# The builder: Go, and the shell with what it is linked with.
make_builder() {
  local root=$work/builder goroot file
  goroot=$(go env GOROOT)
  mkdir -p "$root"/{bin,tmp,etc,usr/local/go}
  cp -aL /bin/sh "$root/bin/sh"
  ldd /bin/sh | grep -o '/[^ ]*' | while read -r file; do
    mkdir -p "$root$(dirname "$file")"
    cp -aL "$file" "$root$file"
  done
  # Without what only building Go itself and testing it needs.
  (cd "$goroot" && tar -c --exclude=src/cmd --exclude=testdata --exclude='*_test.go' bin/go pkg/include pkg/tool/*/{asm,compile,link} src lib VERSION go.env) |
    tar -x -C "$root/usr/local/go"
  base builder "$(go env GOHOSTARCH)" --env PATH=/usr/local/go/bin:/bin --env GOROOT=/usr/local/go --env HOME=/tmp
  rm -rf "$root"
}

# The runtime: what distroless' static image has that matters.
make_runtime() {
  local root=$work/base file arch
  mkdir -p "$root/etc/ssl/certs"
  printf '%s\n' 'root:x:0:0:root:/root:/sbin/nologin' 'nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin' >"$root/etc/passwd"
  printf '%s\n' 'root:x:0:' 'nonroot:x:65532:' >"$root/etc/group"
  file=/etc/ssl/certs/ca-certificates.crt
  [[ ! -f $file ]] || cp -L "$file" "$root$file"
  for arch in amd64 arm64; do base base "$arch"; done
  buildah manifest create localhost/base localhost/base-amd64 localhost/base-arm64 >/dev/null
}

fail() { say "FAILED: $*"; exit 1; }

# expect compares what the image declares: expect what got wanted
expect() { [[ $2 == "$3" ]] || fail "$1 is \"$2\", expected \"$3\""; }

# build runs its arguments with what a build needs here: the bases, and what this machine has of Go's caches.
build() {
  BUILDER_IMAGE="localhost/builder-$(go env GOHOSTARCH)" BASE_IMAGE=localhost/base GOPROXY=off \
    BUILD_ARGS="--pull-never --quiet --volume $(go env GOMODCACHE):/modules:ro --volume $(go env GOCACHE):/compiled --build-arg GOMODCACHE=/modules --build-arg GOCACHE=/compiled" "$@"
}

# digests prints those of the images in a list.
digests() { grep -o '"digest": *"[^"]*"' | cut -d'"' -f4; }

# pushed prints the list that the registry has.
pushed() {
  exec 3<>"/dev/tcp/localhost/$port"
  printf 'GET /v2/karpenter-provider-bizflycloud/manifests/%s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3
  sed '1,/^\r$/d' <&3
  exec 3>&-
}

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CONTAINER_TOOL=buildah PLATFORMS=linux/amd64,linux/arm64

say "making the bases out of $(go version | cut -d' ' -f3) and the certificates of this machine"
make_builder
make_runtime

"$REGISTRY_BIN" -port 0 2>"$work/registry.log" &
registry=$!
for _ in $(seq 100); do
  port=$(sed -n 's/.*serving on port //p' "$work/registry.log")
  [[ -z $port ]] || break
  sleep 0.1
done
[[ -n $port ]] || fail "the registry did not start: $(<"$work/registry.log")"
image=localhost:$port/karpenter-provider-bizflycloud
export VERSION COMMIT

say "building for $PLATFORMS"
build make --no-print-directory docker-build IMG="$image" TAG=first

# Once more in another folder, at another time.
say "building once more, elsewhere"
mkdir -p "$work/elsewhere"
git ls-files -co --exclude-standard -- Dockerfile .dockerignore LICENSE go.mod go.sum cmd internal pkg hack/image.sh |
  while read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done | xargs cp --parents -t "$work/elsewhere"
build env IMG="$image" TAG=second "$work/elsewhere/hack/image.sh" build
expect "the second build's images" "$(buildah manifest inspect "$image:second" | digests)" "$(buildah manifest inspect "$image:first" | digests)"

say "pushing both to a registry on this machine"
for tag in first second; do
  make --no-print-directory docker-push IMG="$image" TAG=$tag PUSH_ARGS=--tls-verify=false 2>"$work/push.log" || { cat "$work/push.log"; fail "it was not pushed (above)"; }
done
expect "the number of images in the registry" "$(pushed first | digests | wc -l)" 2
expect "what the registry has of the second build" "$(pushed second | digests)" "$(pushed first | digests)"
for arch in amd64 arm64; do
  container=$(buildah from --quiet --pull-always --tls-verify=false --arch "$arch" "docker://$image:first")
  root=$(buildah mount "$container")
  look() { buildah inspect --format "{{$1}}" "$container"; }
  expect "the architecture" "$(look .OCIv1.Architecture)" "$arch"
  expect "the user" "$(look .OCIv1.Config.User)" 65532:65532
  expect "the entrypoint" "$(look .OCIv1.Config.Entrypoint)" "[/karpenter-provider-bizflycloud]"
  expect "the version" "$(look 'index .OCIv1.Config.Labels "org.opencontainers.image.version"')" "$VERSION"
  expect "the commit" "$(look 'index .OCIv1.Config.Labels "org.opencontainers.image.revision"')" "$COMMIT"
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
cat >"$work/controller" <<WRAPPER
#!/bin/sh
set -e
install -o 65532 -g 65532 -m 0400 "\$KUBECONFIG" "$ours/kubeconfig"
KUBECONFIG=/kubeconfig exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups=65532 "$ours" /karpenter-provider-bizflycloud "\$@"
WRAPPER
chmod 755 "$work/controller"
IMAGE_CHECK=true CONTROLLER="$work/controller" IMAGE_VERSION="$VERSION" IMAGE_COMMIT="$COMMIT" \
  go test -trimpath -count=1 -timeout=5m ./test/image -ginkgo.v -ginkgo.no-color -ginkgo.poll-progress-after=1m ||
  fail "the controller in the image does not work (above)"
say "passed: $(<.cache/image/digest), built twice with the same digest, pushed, started as 65532"
