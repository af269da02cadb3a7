#!/usr/bin/env bash
# Runs the suite of a real account, or with E2E_CLOUD_SANDBOX=true the same against the sandbox: `make realcloud`. With MODES the sandbox runs in its
# modes: MODES=all MODE_RUNS=50 MODE_SEED=1, or MODES=nvme,regions-down for one combination. SANDBOX_ARGS="--hide-building --mode silent-flavors" are
# flags of the sandbox.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

reports=$PWD/.cache/reports
mkdir -p "$reports"
suite() { go test -v -count=1 "$@" ${CI:+-ginkgo.no-color}; }
if [[ -n ${MODES:-} ]]; then
  E2E_CLOUD_SANDBOX=true E2E_CLOUD_MODES=$MODES MODE_RUNS=${MODE_RUNS:-50} MODE_SEED=${MODE_SEED:-1} \
    suite -timeout=20m ./test/realcloud -ginkgo.fail-on-empty -ginkgo.label-filter=modes
elif [[ -n ${E2E_CLOUD_SANDBOX:-} ]]; then
  E2E_CLOUD_ANSWERS=$reports/answers-sandbox.json E2E_CLOUD_MODES='' suite -timeout=20m ./test/realcloud -ginkgo.v
  if [[ -f test/realcloud/recorded.json ]]; then
    go run ./test/realcloud/compare test/realcloud/recorded.json "$reports/answers-sandbox.json"
  else
    echo "no responses of the real cloud are recorded yet (test/realcloud/recorded.json): nothing to compare with"
  fi
else
  # It records the responses of the cloud in answers-<region>-<run>.json. Copy them to test/realcloud/recorded.json to compare with them. A server lives
  # for less than the two hours that the budget counts: the specs end after 75 minutes, and each of the two removals at the end after 20. While
  # e2e-cloud-run-<run> exists in .cache/reports, something may be left of that run. Ctrl-C must not end what writes the log (tee -i): the removal
  # would end with it.
  E2E_CLOUD_ANSWERS=${E2E_CLOUD_ANSWERS:-$reports/} suite -timeout=3h ./test/realcloud -ginkgo.v -ginkgo.timeout=75m -ginkgo.grace-period=25m 2>&1 |
    tee -i -a "$reports/e2e-cloud.log"
fi
