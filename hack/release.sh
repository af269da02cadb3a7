#!/usr/bin/env bash
# What a release needs: hack/release.sh check|notes|publish|sign|install v1.2.3, or hack/release.sh rehearse.
#
# publish builds and pushes the image and the charts; sign compiles nothing and signs what publish has listed; install installs from
# that registry what was pushed; rehearse does all three with a registry on this machine, and shows what it would sign. The release
# workflow runs each in a job of its own; docs/contribute/release.md says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command=${1:-} tag=${2:-}
[[ $command == rehearse ]] && tag=${tag:-v$(sed -n 's/^version: *//p' charts/karpenter-provider-bizflycloud/Chart.yaml)}
[[ $command =~ ^(check|notes|publish|sign|install|rehearse)$ && $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
  { echo "usage: hack/release.sh check|notes|publish|sign|install v<major>.<minor>.<patch>[-<pre-release>], hack/release.sh rehearse" >&2; exit 2; }
version=${tag#v}
HELM=${HELM:-.cache/tools/helm}
# Both are of a registry without TLS where the rehearsal says so.
PLAIN_HTTP=${PLAIN_HTTP:-}
DRY_RUN=${DRY_RUN:-}
# As make builds everything, so that the tests of install share its build cache.
export CGO_ENABLED=0

# notes prints the section of the changelog about the version.
notes() {
  awk -v heading="## [$version]" '
    index($0, heading) == 1 { found = 1; next }
    found && (/^## / || /^\[[^]]+\]: /) { exit }
    found { lines[++n] = $0 }
    END {
      first = 1
      while (first <= n && lines[first] == "") first++
      while (n >= first && lines[n] == "") n--
      for (i = first; i <= n; i++) print lines[i]
      exit n < first
    }' CHANGELOG.md
}

# check reports everything that does not match the tag, not only the first mismatch.
check() {
  local chart field value failed=0
  notes >/dev/null || { echo "CHANGELOG.md has nothing below \"## [$version] - <date>\""; failed=1; }
  for chart in charts/*/Chart.yaml; do
    for field in version appVersion; do
      value=$(sed -n "s/^$field: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$chart")
      [[ $value == "$version" ]] || { echo "$chart: $field is \"$value\", the tag is $version"; failed=1; }
    done
  done
  return $failed
}

# signed runs a command of cosign, or shows it.
signed() {
  if [[ -n $DRY_RUN ]]; then
    echo "would sign: cosign $*"
  else
    cosign "$@"
  fi
}

# What was pushed, for sign: one line each, its kind and its reference by digest.
PUSHED=.cache/release/pushed.txt

# sbom writes the bill of materials of the image of one platform: sbom arch digest
sbom() {
  local file=dist/sbom-linux-$1.spdx.json
  if ! command -v syft >/dev/null; then
    [[ -n $DRY_RUN ]] || { echo "there is no syft to write $file with" >&2; return 1; }
    echo "would write: $file (there is no syft)"
    return
  fi
  SYFT_REGISTRY_INSECURE_USE_HTTP=${PLAIN_HTTP:+true} syft scan --quiet "registry:$IMG@$2" --output "spdx-json=$file"
  echo "$file $IMG@$2" >>"$PUSHED"
}

# vex writes which known vulnerabilities of its modules the controller cannot reach, from the calls that it makes.
vex() {
  local file=dist/openvex.json
  if [[ -n $DRY_RUN ]]; then
    echo "would write: $file (it asks the Go vulnerability database)"
    return
  fi
  make --no-print-directory "$PWD/.cache/tools/govulncheck"
  .cache/tools/govulncheck -format openvex ./cmd/controller >"$file"
  echo "$file $IMG@$1" >>"$PUSHED"
}

# The rehearsal wraps what builds the image: hack/buildah.sh.
build() { "$@"; }

# publish pushes to IMG and CHARTS, and leaves in dist/ what is attached to the release.
publish() {
  : "${IMG:?where the image goes}" "${CHARTS:?where the charts go, oci://...}"
  local chart digest
  rm -rf dist && mkdir -p dist "$(dirname "$PUSHED")"
  build make --no-print-directory docker-build docker-push CONTAINER_TOOL=buildah IMG="$IMG" TAG="$version" VERSION="$version" \
    PUSH_ARGS="${PLAIN_HTTP:+--tls-verify=false}"
  digest=$(<.cache/image/digest)
  echo "image $IMG@$digest" >"$PUSHED"
  # The index lists one image for each platform, each of which has its own bill.
  buildah manifest inspect "$IMG:$version" |
    awk -F'"' '$2 == "digest" { digest = $4 } $2 == "architecture" { print $4, digest }' >dist/platforms
  while read -r arch image; do sbom "$arch" "$image"; done <dist/platforms
  rm dist/platforms
  vex "$digest"

  make --no-print-directory chart-package DIGEST="$digest"
  for chart in .cache/charts/*.tgz; do
    "$HELM" push "$chart" "$CHARTS" ${PLAIN_HTTP:+--plain-http} 2>&1 | tee dist/pushed
    echo "chart $(sed -n 's/^Pushed: *\(.*\):[^:]*$/\1/p' dist/pushed)@$(sed -n 's/^Digest: *//p' dist/pushed)" >>"$PUSHED"
    cp "$chart" dist/
  done
  rm dist/pushed
  "$HELM" template karpenter-crd charts/karpenter-provider-bizflycloud-crd >dist/crds.yaml
  echo "$IMG@$digest" >dist/image.txt
  hack/plugin.sh "v$version"
  mv dist/plugin/* dist/ && rmdir dist/plugin
  (cd dist && sha256sum -- * >checksums.txt)
}

# sign signs what publish has listed, and nothing outside of IMG and CHARTS.
sign() {
  : "${IMG:?where the image is}" "${CHARTS:?where the charts are, oci://...}"
  local kind reference
  (cd dist && sha256sum --check --quiet checksums.txt)
  while read -r kind reference; do
    [[ ${reference%@sha256:*} == "$IMG" || ${reference%@sha256:*} =~ ^"${CHARTS#oci://}"/karpenter-provider-bizflycloud(-crd)?$ ]] &&
      [[ ${reference##*@sha256:} =~ ^[0-9a-f]{64}$ ]] || { echo "$PUSHED lists $reference, which is not of this release" >&2; return 1; }
    case $kind in
      image) signed sign --yes --recursive "$reference" ;;
      chart) signed sign --yes "$reference" ;;
      dist/sbom-*.spdx.json) signed attest --yes --type spdxjson --predicate "$kind" "$reference" ;;
      dist/openvex.json) signed attest --yes --type openvex --predicate "$kind" "$reference" ;;
      *) echo "$PUSHED lists $kind, which is nothing that is signed" >&2; return 1 ;;
    esac
  done <"$PUSHED"
  (cd dist && signed sign-blob --yes --bundle checksums.txt.bundle checksums.txt)
}

# install takes charts and controller out of the registry and installs, uses and removes them on a control plane of the tests.
install() {
  : "${IMG:?where the image is}" "${CHARTS:?where the charts are, oci://...}"
  local pulled container chart image
  pulled=$(mktemp -d)
  for chart in karpenter-provider-bizflycloud karpenter-provider-bizflycloud-crd; do
    "$HELM" pull "$CHARTS/$chart" --version "$version" --untar --destination "$pulled" ${PLAIN_HTTP:+--plain-http}
  done
  # What the chart runs, from the registry of this release.
  image=$("$HELM" template karpenter "$pulled/karpenter-provider-bizflycloud" --set settings.clusterName=a,cloud.region=HN,credentials.existingSecret=a \
    --show-only templates/deployment.yaml | sed -n 's/^ *image: "\(.*\)"$/\1/p')
  [[ $image == *":$version@sha256:"* ]] || { echo "the chart runs $image, which is not pinned to the digest of its image" >&2; return 1; }
  container=$(buildah from --quiet --pull-always ${PLAIN_HTTP:+--tls-verify=false} "docker://$IMG@${image##*@}")
  # Without root, a container can be mounted only inside of buildah's own namespace.
  local inside=()
  ((EUID == 0)) || inside=(buildah unshare)
  "${inside[@]}" sh -c 'cp "$(buildah mount "$0")/karpenter-provider-bizflycloud" "$1/controller"' "$container" "$pulled"
  buildah rm "$container" >/dev/null
  [[ $("$pulled/controller" --version) == "karpenter-provider-bizflycloud $version "* ]] ||
    { echo "the image is of $("$pulled/controller" --version), not of $version" >&2; return 1; }
  go build -trimpath -o .cache/bin/sandbox ./test/sandbox
  E2E=true INSTALL_CHARTS=$pulled CONTROLLER=$pulled/controller SANDBOX=$PWD/.cache/bin/sandbox HELM=$PWD/$HELM \
    KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$PWD/.cache/controlplane/bin} \
    go test -trimpath -count=1 -timeout=20m ./test/install -ginkgo.v -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.focus='documented order with Helm'
  rm -rf "$pulled"
}

rehearse() {
  name=release
  # shellcheck source=hack/buildah.sh
  . hack/buildah.sh
  IMG=localhost:$port/karpenter-provider-bizflycloud CHARTS=oci://localhost:$port/charts PLAIN_HTTP=true DRY_RUN=true
  publish
  sign
  install
  say "passed: $version was published to and installed from a registry on this machine"
}

"$command"
