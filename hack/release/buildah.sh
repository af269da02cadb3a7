# shellcheck shell=bash
# What hack/release/image-check.sh and hack/release/release.sh rehearse share: buildah with a storage of its own, and a registry on this machine. It needs
# root on Linux, and no daemon, no registry and no image of others: the bases are made here, out of the Go toolchain and the
# certificates of the machine. The script that sources it names itself first: name=image.
: "${name:?what the lines begin with}"
say() { printf '%s\n' "--- $name: $*"; }
# Where it cannot run, it is skipped, but for the machines of the workflows, which were chosen for it: a run without specs must not pass there.
skip() {
  say "skipped: $*"
  [[ -z ${GITHUB_ACTIONS:-} ]] || exit 1
  exit 0
}
fail() { say "FAILED: $*"; exit 1; }

[[ $(uname -s) == Linux ]] || skip "buildah runs on Linux only"
((EUID == 0)) || skip "not root: a build without a daemon needs it for its chroot"
unshare --mount true 2>/dev/null || skip "root may not mount here, as in most containers"
if ! command -v buildah >/dev/null; then
  [[ -n ${CI:-} ]] || skip "there is no buildah: apt-get install buildah (with CI=true it is installed)"
  command -v apt-get >/dev/null || skip "there is no buildah and no apt-get to install it with"
  say "installing buildah"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends buildah; } >.cache/image-apt.log 2>&1 ||
    { tail -n 20 .cache/image-apt.log; skip "apt-get could not install buildah (above)"; }
fi

scratch=$(mktemp -d)
# Storage of its own, so that it leaves nothing behind and sees nothing of yours. Everything needs these.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF=$scratch/storage.conf
cat >"$scratch/storage.conf" <<CONF
[storage]
driver = "vfs"
graphroot = "$scratch/root"
runroot = "$scratch/run"
CONF
# What runs beside the script until its end, by process.
beside=()
cleanup() {
  ((${#beside[@]} == 0)) || kill "${beside[@]}" 2>/dev/null || true
  buildah umount --all >/dev/null 2>&1 || true
  buildah rm --all >/dev/null 2>&1 || true
  # Mounts below it are in use: Go's caches, while a build runs.
  if grep -qF " $scratch/" /proc/self/mounts; then
    say "something is still mounted in $scratch: it is left there"
  else
    rm -rf "$scratch"
  fi
}
trap cleanup EXIT

# commit_base makes an image of what is in the folder of its name: commit_base NAME ARCH FLAGS...
commit_base() {
  local base=$1 arch=$2 container
  container=$(buildah from scratch)
  cp -a "$scratch/$base/." "$(buildah mount "$container")/"
  buildah umount "$container" >/dev/null
  buildah config --os linux --arch "$arch" "${@:3}" "$container"
  buildah commit --quiet --rm --timestamp "$SOURCE_DATE_EPOCH" "$container" "localhost/$base-$arch" >/dev/null
}

# The builder: Go, and the shell with what it is linked with.
make_builder() {
  local root=$scratch/builder goroot file
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
  commit_base builder "$(go env GOHOSTARCH)" --env PATH=/usr/local/go/bin:/bin --env GOROOT=/usr/local/go --env HOME=/tmp
  rm -rf "$root"
}

# The runtime: what distroless' static image has that matters.
make_runtime() {
  local root=$scratch/base file arch
  mkdir -p "$root/etc/ssl/certs"
  printf '%s\n' 'root:x:0:0:root:/root:/sbin/nologin' 'nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin' >"$root/etc/passwd"
  printf '%s\n' 'root:x:0:' 'nonroot:x:65532:' >"$root/etc/group"
  file=/etc/ssl/certs/ca-certificates.crt
  [[ ! -f $file ]] || cp -L "$file" "$root$file"
  for arch in amd64 arm64; do commit_base base "$arch"; done
  buildah manifest create localhost/base localhost/base-amd64 localhost/base-arm64 >/dev/null
}

# build runs its arguments with what a build needs here: the bases, and what this machine has of Go's caches.
build() {
  BUILDER_IMAGE="localhost/builder-$(go env GOHOSTARCH)" BASE_IMAGE=localhost/base GOPROXY=off \
    BUILD_ARGS="--pull-never --quiet --volume $(go env GOMODCACHE):/modules:ro --build-arg GOMODCACHE=/modules \
      --volume $(go env GOCACHE):/compiled --build-arg GOCACHE=/compiled" "$@"
}

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CONTAINER_TOOL=buildah PLATFORMS=linux/amd64,linux/arm64

say "making the bases out of $(go version | cut -d' ' -f3) and the certificates of this machine"
make_builder
make_runtime

hack/tools/build.sh registry
.cache/tools/registry -port 0 2>"$scratch/registry.log" &
beside+=($!)
for _ in $(seq 100); do
  port=$(sed -n 's/.*serving on port //p' "$scratch/registry.log")
  [[ -z $port ]] || break
  sleep 0.1
done
[[ -n $port ]] || fail "the registry did not start: $(<"$scratch/registry.log")"
