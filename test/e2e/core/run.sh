#!/usr/bin/env bash
# Runs Karpenter core's own end-to-end suites against this provider: `make core-e2e`. They are test packages of its module, which
# test/e2e/core/suites pins with what they need. The arguments are flags of test/e2e/core.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

cache=$PWD/.cache
mkdir -p "$cache/conformance"
go build -o "$cache/bin/core" ./test/e2e/core
echo "compiling Karpenter's suites (a minute the first time)"
cd test/e2e/core/suites
for suite in regression disruption dra performance; do
  go test -c -o "$cache/conformance/$suite.test" sigs.k8s.io/karpenter/test/suites/$suite
done
scheduler=$(go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)/test/suites/regression/testdata/kube-scheduler-config.yaml
cd ../../../..
exec "$cache/bin/core" --suites "$cache/conformance" --reports "$cache/reports/conformance" --scheduler-config "$scheduler" "$@"
