#!/usr/bin/env bash
# Builds the image of the controller for every platform, pushes it, and checks both from end to end.
# `make image` and `make e2e SUITE=image` run it; alone: hack/release/image.sh build|push|check
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

: "${IMG:?where the image is pushed to, without a tag}" "${TAG:?the tag}" "${VERSION:?}"
COMMIT=${COMMIT:-}
PLATFORMS=${PLATFORMS:-linux/amd64,linux/arm64}
CONTAINER_TOOL=${CONTAINER_TOOL:-docker}
# What is built: the controller, or test/sandbox/Dockerfile.
DOCKERFILE=${DOCKERFILE:-Dockerfile}
# base prints the reference that the stage of hack/release/Dockerfile is made of.
base() { sed -n "s/^FROM \(.*\) AS $1\$/\1/p" hack/release/Dockerfile; }
BUILDER_IMAGE=${BUILDER_IMAGE:-$(base builder)}
case $DOCKERFILE in
  test/sandbox/*) BASE_IMAGE=${BASE_IMAGE:-$(base sandbox)} ;;
  *) BASE_IMAGE=${BASE_IMAGE:-$(base controller)} ;;
esac
# Further arguments of the tool, split at spaces; BUILD_ARGS and PUSH_ARGS are never quoted below on purpose.
BUILD_ARGS=${BUILD_ARGS:-}
PUSH_ARGS=${PUSH_ARGS:-}
# Every time in the image is that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# args prints the arguments of every tool, one in a line.
args() {
  printf '%s\n' --file="$DOCKERFILE" \
    --build-arg "VERSION=$VERSION" --build-arg "COMMIT=$COMMIT" \
    --build-arg "CREATED=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
  local name
  for name in BUILDER_IMAGE BASE_IMAGE GOPROXY; do
    [[ -z ${!name:-} ]] || printf '%s\n' --build-arg "$name=${!name}"
  done
}

# buildah_build makes a list of one image per platform. One after the other, or their order in the list, and with it the
# list's digest, would be a matter of luck.
buildah_build() {
  local platform arguments
  mapfile -t arguments < <(args)
  buildah manifest rm "$IMG:$TAG" >/dev/null 2>&1 || true
  buildah manifest create "$IMG:$TAG" >/dev/null
  for platform in ${PLATFORMS//,/ }; do
    # Older ones do not know the platform that they run on.
    # shellcheck disable=SC2086
    buildah build "${arguments[@]}" --build-arg "BUILDPLATFORM=linux/$(go env GOHOSTARCH)" --format=oci --timestamp="$SOURCE_DATE_EPOCH" \
      --platform="$platform" --manifest="$IMG:$TAG" $BUILD_ARGS .
  done
}

# For several platforms docker needs its plugin.
need_buildx() {
  docker buildx version >/dev/null 2>&1 ||
    { echo "docker is not there or has no buildx: install the plugin, or set CONTAINER_TOOL=buildah" >&2; return 1; }
}

image_build() {
  local arguments load=
  case $CONTAINER_TOOL in
    buildah) buildah_build ;;
    docker)
      need_buildx
      mapfile -t arguments < <(args)
      # Of more than one platform it stays in the builder's cache until it is pushed: docker itself may not keep such images.
      [[ $PLATFORMS == *,* ]] || load=--load
      # shellcheck disable=SC2086
      docker buildx build "${arguments[@]}" --platform="$PLATFORMS" --tag="$IMG:$TAG" $load $BUILD_ARGS .
      ;;
    *) echo "CONTAINER_TOOL=$CONTAINER_TOOL is neither docker nor buildah" >&2; return 1 ;;
  esac
}

image_push() {
  local arguments
  mkdir -p .cache/image && rm -f .cache/image/digest
  case $CONTAINER_TOOL in
    # shellcheck disable=SC2086
    buildah) buildah manifest push --all --format=oci --digestfile=.cache/image/digest $PUSH_ARGS "$IMG:$TAG" "docker://$IMG:$TAG" ;;
    docker)
      need_buildx
      mapfile -t arguments < <(args)
      # Provenance and an SBOM are made and signed by the release, for all that is released and in one way.
      # shellcheck disable=SC2086
      docker buildx build "${arguments[@]}" --platform="$PLATFORMS" --provenance=false --metadata-file=.cache/image/metadata.json \
        --output="type=image,name=$IMG:$TAG,push=true,oci-mediatypes=true,rewrite-timestamp=true" $BUILD_ARGS $PUSH_ARGS .
      sed -n 's/.*"containerimage.digest": *"\([^"]*\)".*/\1/p' .cache/image/metadata.json >.cache/image/digest
      ;;
    *) echo "CONTAINER_TOOL=$CONTAINER_TOOL is neither docker nor buildah" >&2; return 1 ;;
  esac
  # Older buildahs end well also when they could not push: only the digest proves that they have.
  [[ -s .cache/image/digest ]] || { echo "pushing $IMG:$TAG failed (above)" >&2; return 1; }
  echo "pushed $IMG:$TAG@$(<.cache/image/digest)"
}

case ${1:-} in
  build) image_build ;;
  push) image_push ;;
  check) exec hack/release/image-check.sh ;;
  *) echo "usage: hack/release/image.sh build|push|check" >&2; exit 2 ;;
esac
