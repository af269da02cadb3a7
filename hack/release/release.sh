#!/usr/bin/env bash
# What a release needs: hack/release/release.sh check|notes|publish|sign|verify|install v1.2.3, digests, compare, or rehearse.
#
# check compares the tag with charts and changelog; notes prints what the changelog has of it; publish builds and pushes the image and the
# charts; sign compiles nothing and signs what publish has listed; verify runs the commands with which users check a release; install
# installs from that registry what was pushed; rehearse does all of these with a registry and with Sigstore's services on this machine.
# The release workflow runs each in a job of its own, which hands over dist/ with its digests: digests prints them, compare reads and compares them.
# docs/contribute/release.md says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

command=${1:-} tag=${2:-}
[[ $command == rehearse ]] && tag=${tag:-v$(sed -n 's/^version: *//p' charts/karpenter-provider-bizflycloud/Chart.yaml)}
[[ $command =~ ^(digests|compare)$ || $command =~ ^(check|notes|publish|sign|verify|install|rehearse)$ && $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
  { echo "usage: hack/release/release.sh check|notes|publish|sign|verify|install v<major>.<minor>.<patch>[-<pre-release>], or digests|compare|rehearse" >&2; exit 2; }
version=${tag#v}
HELM=${HELM:-.cache/tools/helm}
# Image and charts are in a registry without TLS where the rehearsal says so.
PLAIN_HTTP=${PLAIN_HTTP:-}
REHEARSAL=${REHEARSAL:-}
# As make builds everything, so that the tests of install share its build cache.
export CGO_ENABLED=0

# notes prints the section of the changelog about the version. A rehearsal may come before it has this name.
notes() {
  local heading="## [$version]"
  [[ -z $REHEARSAL ]] || grep -qF "$heading" CHANGELOG.md || heading="## [Unreleased]"
  awk -v heading="$heading" '
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

# What was pushed, for sign and verify: one line each, its kind and its reference by digest.
PUSHED=dist/pushed.txt
# What provenance is about, for whoever attests it: the digest and the name of each file and of the image.
SUBJECTS=.cache/subjects.txt

digests() { (cd dist && sha256sum -- *); }

# compare fails unless dist has the files of the list, as they were, and no other one.
compare() {
  diff - <(digests) >&2 || { echo "dist is not what the job before has handed over" >&2; return 1; }
}

# sbom writes a bill of materials: sbom SOURCE FILE, where the source is one of syft's.
sbom() {
  if [[ -n $REHEARSAL ]] && ! command -v syft >/dev/null; then
    echo "there is no syft: $2 is a bill without packages"
    printf '{"spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "dataLicense": "CC0-1.0", "name": "%s", "packages": []}\n' "$1" >"$2"
  else
    SYFT_REGISTRY_INSECURE_USE_HTTP=${PLAIN_HTTP:+true} syft scan --quiet "$1" --output "spdx-json=$2"
  fi
}

# vex writes which known vulnerabilities of its modules a program cannot reach, from the calls that it makes: vex FOLDER PACKAGE PRODUCT FILE.
# govulncheck does not know whom it writes for and about what: a scanner applies only what names the product.
vex() {
  hack/tools/build.sh govulncheck
  (cd "$1" && "$OLDPWD/.cache/tools/govulncheck" ${VULNERABILITIES:+-db "file://$VULNERABILITIES"} -format openvex "$2") |
    sed -e 's|"Unknown Author"|"The Karpenter Provider BizFly Cloud Authors"|' -e "s|\"Unknown Product\"|\"$3\"|" >"$4"
}

# The rehearsal wraps what builds the image: hack/release/buildah.sh.
build() { "$@"; }

# publish pushes to IMG and CHARTS, and leaves in dist/ what is attached to the release.
publish() {
  : "${IMG:?where the image goes}" "${CHARTS:?where the charts go, oci://...}"
  local chart digest arch image archive output
  rm -rf dist && mkdir -p dist
  build make --no-print-directory image PUSH=true CONTAINER_TOOL=buildah IMG="$IMG" TAG="$version" VERSION="$version" \
    PUSH_ARGS="${PLAIN_HTTP:+--tls-verify=false}"
  digest=$(<.cache/image/digest)
  echo "$IMG@$digest" >dist/image.txt
  echo "image $IMG@$digest" >"$PUSHED"
  # The index lists one image for each platform, each of which has its own bill.
  while read -r arch image; do
    sbom "registry:$IMG@$image" "dist/sbom-linux-$arch.spdx.json"
    echo "dist/sbom-linux-$arch.spdx.json $IMG@$image" >>"$PUSHED"
  done < <(buildah manifest inspect "$IMG:$version" | awk -F'"' '$2 == "digest" { digest = $4 } $2 == "architecture" { print $4, digest }')
  vex . ./cmd/controller "pkg:oci/${IMG##*/}@${digest/:/%3A}?repository_url=$IMG" dist/openvex.json
  echo "dist/openvex.json $IMG@$digest" >>"$PUSHED"

  hack/tools/build.sh helm
  make --no-print-directory package WHAT=charts DIGEST="$digest" IMG="$IMG" TAG="$version"
  for chart in .cache/charts/*.tgz; do
    output=$("$HELM" push "$chart" "$CHARTS" ${PLAIN_HTTP:+--plain-http} 2>&1) || { echo "$output" >&2; return 1; }
    echo "chart $(sed -n 's/^Pushed: *\(.*\):[^:]*$/\1/p' <<<"$output")@$(sed -n 's/^Digest: *//p' <<<"$output")" | tee -a "$PUSHED"
    cp "$chart" dist/
  done
  "$HELM" template karpenter-crd charts/karpenter-provider-bizflycloud-crd >dist/crds.yaml

  hack/release/plugin.sh "v$version"
  mv dist/plugin/* dist/ && rmdir dist/plugin
  for archive in dist/kubectl-bizfly_*.tar.gz; do sbom "file:$archive" "${archive%.tar.gz}.spdx.json"; done
  vex cmd/kubectl-bizfly . "pkg:generic/kubectl-bizfly@v$version" dist/kubectl-bizfly.openvex.json
  (cd dist && sha256sum -- *) | grep -v ' pushed\.txt$' >.cache/checksums.txt
  mv .cache/checksums.txt dist/
}

# sign signs what publish has listed, and nothing outside of IMG and CHARTS.
sign() {
  : "${IMG:?where the image is}" "${CHARTS:?where the charts are, oci://...}"
  local kind reference
  (cd dist && sha256sum --check --quiet --strict checksums.txt)
  while read -r kind reference; do
    [[ ${reference%@sha256:*} == "$IMG" || ${reference%@sha256:*} =~ ^"${CHARTS#oci://}"/karpenter-provider-bizflycloud(-crd)?$ ]] &&
      [[ ${reference##*@sha256:} =~ ^[0-9a-f]{64}$ ]] || { echo "$PUSHED lists $reference, which is not of this release" >&2; return 1; }
    case $kind in
      image) cosign sign --yes --recursive "$reference" ;;
      chart) cosign sign --yes "$reference" ;;
      dist/sbom-*.spdx.json) cosign attest --yes --type spdxjson --predicate "$kind" "$reference" ;;
      dist/openvex.json) cosign attest --yes --type openvex --predicate "$kind" "$reference" ;;
      *) echo "$PUSHED lists $kind, which is nothing that is signed" >&2; return 1 ;;
    esac
  done <"$PUSHED"
  (cd dist && cosign sign-blob --yes --new-bundle-format --bundle checksums.txt.bundle checksums.txt)
  mkdir -p "$(dirname "$SUBJECTS")"
  { cat dist/checksums.txt; sed -n 's|^image \(.*\)@sha256:\(.*\)$|\2  \1|p' "$PUSHED"; } >"$SUBJECTS"
}

# cosign runs the program: in a rehearsal it trusts the stand-in for Sigstore, and with REJECTED it has to fail.
cosign() {
  local trusted=()
  if [[ -n $REHEARSAL && " $* " == *" --new-bundle-format "* ]]; then
    trusted=(COSIGN_TRUSTED_ROOT="$scratch/sigstore/trusted_root.json")
  elif [[ -n $REHEARSAL ]]; then
    trusted=(SIGSTORE_ROOT_FILE="$scratch/sigstore/authority.pem" SIGSTORE_CT_LOG_PUBLIC_KEY_FILE="$scratch/sigstore/certificates.pub"
      SIGSTORE_REKOR_PUBLIC_KEY="$scratch/sigstore/entries.pub")
  fi
  if [[ -z ${REJECTED:-} ]]; then
    env "${trusted[@]}" cosign "$@"
  elif env "${trusted[@]}" cosign "$@" 2>/dev/null; then
    echo "this accepts what another workflow would sign: cosign $*" >&2
    return 1
  fi
}

# verify runs the commands of the page for this release, in the folder of its files, and expects each of cosign to reject another workflow.
verify() {
  : "${IMG:?where the image is}"
  local page=docs/contribute/release.md commands
  commands=$(awk '/^## / { here = $0 == "## How to check one" } here && /^```/ { if (inside) exit; inside = 1; next } inside' "$page" |
    sed -e "s|^REGISTRY=.*|REGISTRY=${IMG%/*}|" -e "s|1\.2\.3|$version|g" -e "s|<digest of your platform>|$(sed -n 's|^dist/sbom-.*@||p' "$PUSHED" | head -n 1)|")
  (($(grep -c '^cosign verify' <<<"$commands") >= 5)) || { echo "$page has no commands below \"How to check one\"" >&2; return 1; }
  (cd dist && eval "$commands") >/dev/null
  (cd dist && REJECTED=true && eval "${commands//publish.yaml/ci.yaml}") >/dev/null
  echo "verified as $page says: $(grep -c '^cosign verify' <<<"$commands") signatures and attestations"
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
    go test -trimpath -count=1 -timeout=20m ./test/e2e/install -ginkgo.v -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.focus='documented order with Helm'
  rm -rf "$pulled"
}

# start_sigstore starts what stands in for Sigstore's services: they name in certificates the workflow that signs.
start_sigstore() {
  mkdir "$scratch/sigstore"
  .cache/tools/sigstore -dir "$scratch/sigstore" -issuer https://token.actions.githubusercontent.com \
    -identity "https://github.com/bizflycloud/karpenter-provider-bizflycloud/$(grep -lF 'hack/release/release.sh sign' .github/workflows/*.yaml)@refs/tags/$tag" &
  beside+=($!)
  for _ in $(seq 100); do
    [[ ! -f $scratch/sigstore/url ]] || break
    sleep 0.1
  done
}

# known_vulnerabilities makes a database of two, in a function that controller and plugin call and in one that they do not call.
known_vulnerabilities() {
  mkdir "$1"
  local id=0 function
  for function in New NewDCESecurity; do
    id=$((id + 1))
    cat >"$1/GO-0000-000$id.json" <<JSON
{"schema_version": "1.3.1", "id": "GO-0000-000$id", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "none, for a rehearsal",
  "affected": [{"package": {"name": "github.com/google/uuid", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
    "ecosystem_specific": {"imports": [{"path": "github.com/google/uuid", "symbols": ["$function"]}]}}]}
JSON
  done
}

# expect_vex FILE PRODUCT compares what was written with that database.
expect_vex() {
  [[ $(sed -n 's/.*"status": "\(.*\)",*/\1/p' "$1" | xargs) == "affected not_affected" && $(grep -cF "$2" "$1") == 2 ]] ||
    fail "$1 does not have the two vulnerabilities of the rehearsal: $(<"$1")"
}

# keyless runs a command that signs, with what cosign takes from GitHub in the workflow.
keyless() {
  COSIGN_FULCIO_URL=$(<"$scratch/sigstore/url") COSIGN_REKOR_URL=$(<"$scratch/sigstore/url") COSIGN_IDENTITY_TOKEN=$scratch/sigstore/token "$@"
}

# provenance attests what actions/attest-build-provenance does in the workflow, without its details of a run.
provenance() {
  local digest name subjects=
  while read -r digest name; do subjects+=${subjects:+, }"{\"name\": \"$name\", \"digest\": {\"sha256\": \"$digest\"}}"; done <"$SUBJECTS"
  printf '{"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1", "subject": [%s], "predicate": %s}\n' "$subjects" \
    '{"buildDefinition": {"buildType": "https://actions.github.io/buildtypes/workflow/v1"}, "runDetails": {"builder": {"id": "rehearsal"}}}' >"$scratch/statement.json"
  cosign attest-blob --yes --new-bundle-format --statement "$scratch/statement.json" --bundle dist/provenance.sigstore.json
}

rehearse() {
  local handed archive tool
  name=release REHEARSAL=true
  check
  # shellcheck source=hack/release/buildah.sh
  . hack/release/buildah.sh
  for tool in cosign sigstore; do hack/tools/build.sh $tool; done
  IMG=localhost:$port/karpenter-provider-bizflycloud CHARTS=oci://localhost:$port/charts PLAIN_HTTP=true
  PATH=$PWD/.cache/tools:$PATH VULNERABILITIES=$scratch/vulnerabilities
  known_vulnerabilities "$VULNERABILITIES"
  publish
  expect_vex dist/openvex.json "repository_url=$IMG\""
  expect_vex dist/kubectl-bizfly.openvex.json "kubectl-bizfly@$tag\""
  for archive in dist/kubectl-bizfly_*.tar.gz; do
    grep -q '"spdxVersion"' "${archive%.tar.gz}.spdx.json" && grep -qF " ${archive##*/}" dist/checksums.txt || fail "$archive has no SBOM, or no checksum"
  done

  say "handing over: what another job would have replaced or added is not signed"
  handed=$(digests)
  compare <<<"$handed"
  cp dist/crds.yaml "$scratch/" && echo >>dist/crds.yaml
  ! compare <<<"$handed" 2>/dev/null || fail "a file that was changed is taken for what was handed over"
  cp "$scratch/crds.yaml" dist/ && : >dist/added
  ! compare <<<"$handed" 2>/dev/null || fail "a file that was added is taken for what was handed over"
  rm dist/added && compare <<<"$handed"

  say "signing with services on this machine"
  start_sigstore
  keyless sign
  keyless provenance
  verify
  install
  say "passed: $version was published to, verified and installed from a registry on this machine"
}

"$command"
