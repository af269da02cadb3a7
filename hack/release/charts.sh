#!/usr/bin/env bash
# Packages both charts into .cache/charts. A release pins its image in them: DIGEST=sha256:... IMAGE=registry.example/karpenter:v1.2.3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

charts=.cache/charts controller=karpenter-provider-bizflycloud
rm -rf $charts && mkdir -p $charts && cp -r charts $charts/sources
if [[ -n ${DIGEST:-} ]]; then
  printf '  karpenter.bizflycloud.vn/image-digest: %s\n  artifacthub.io/images: |\n    - name: controller\n      image: %s\n' \
    "$DIGEST" "${IMAGE:?}@$DIGEST" >>$charts/sources/$controller/Chart.yaml
fi
"${HELM:-.cache/tools/helm}" package --destination $charts $charts/sources/$controller-crd $charts/sources/$controller
