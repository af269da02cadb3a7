#!/usr/bin/env bash
# Writes what comes from the code: deep copies, custom resource definitions, config/ from the chart, reference pages. hack/generate.sh all also records
# what suites compare with: the chart's golden files, what the plugin prints into its page, and the picture of top. `make generate` and `make verify` run it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$PWD/.cache/tools crds=$PWD/.cache/crds chart=charts/karpenter-provider-bizflycloud
core=$(go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)/pkg/apis/crds
# replace FILE COMMAND...: a file is written once its new contents are complete.
replace() { "${@:2}" >"$crds/new" && mv "$crds/new" "$1"; }

"$tools/controller-gen" object:headerFile=hack/boilerplate.go.txt paths=./pkg/apis/...
# In another folder first, since the package that embeds them must compile meanwhile.
rm -rf "$crds"
"$tools/controller-gen" crd paths=./pkg/apis/... output:crd:dir="$crds"
rm -f pkg/apis/crds/*.yaml && mkdir -p pkg/apis/crds && cp "$crds"/*.yaml pkg/apis/crds/
for dir in config/crd $chart-crd/templates; do
  rm -f $dir/*_*.yaml && cp "$crds"/*.yaml "$core"/*.yaml $dir/ && chmod 644 $dir/*_*.yaml
done
# keep is an annotation with which uninstalling the chart keeps the definitions, and so NodePools, NodeClaims and servers.
keep() {
  awk '{ print } !done && /^  annotations:$/ { print "    helm.sh/resource-policy: keep"; done = 1 } END { exit !done }' "$1"
}
# Cluster-autoscaler ships CapacityBuffer, too.
optional() { echo '{{- if .Values.capacityBuffers.enabled }}' && cat "$1" && echo '{{- end }}'; }
kustomization() {
  printf '# Written by make generate.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n'
  (cd config/crd && printf '  - %s\n' *_*.yaml)
}
for crd in $chart-crd/templates/*_*.yaml; do
  ! grep -n '{{' "$crd" || { echo "$crd: braces are a template to Helm: word that description differently"; exit 1; }
  replace "$crd" keep "$crd"
done
for crd in $chart-crd/templates/*_capacitybuffers.yaml; do replace "$crd" optional "$crd"; done
replace config/crd/kustomization.yaml kustomization

go build -o .cache/bin/docs ./hack/docs && go build -o .cache/bin/chart ./hack/chart
for page in reference/{compatibility,fields,flavors,metrics,options} contribute/sandbox; do
  replace "docs/$page.md" .cache/bin/docs "$page"
done
replace cmd/kubectl-bizfly/internal/offline/catalog.json .cache/bin/docs catalog
HELM=$tools/helm .cache/bin/chart
"$tools/helm-docs" --chart-search-root charts --sort-values-order file --log-level warning

[[ ${1:-} == all ]] || exit 0
UPDATE_GOLDEN=true go test -count=1 ./test/component/chart -ginkgo.fail-on-empty -ginkgo.focus='golden files'
cd cmd/kubectl-bizfly && UPDATE_DOCS=true go test -count=1 ./internal/cli -ginkgo.fail-on-empty -ginkgo.focus='docs/|flags of each'
