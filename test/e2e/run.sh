#!/usr/bin/env bash
# Runs suites with whole processes: test/e2e/run.sh SUITE... (`make e2e` builds what they start). Those that only wait for processes run side by side,
# and so do the specs of each: every process starts a control plane of its own. PROCS=3 is their number.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

reports=$PWD/.cache/reports make=${MAKE:-make} status=0 pids=() logs=()
mkdir -p "$reports/chaos"

# ginkgo DIR FLAGS...: the caller's flags may be quoted.
ginkgo() {
  local dir=$1 flags
  shift
  eval "flags=(${GINKGO_FLAGS:-})"
  # A focus may leave nothing of one of several suites.
  [[ -n ${GINKGO_FLAGS:-} ]] || flags+=(--fail-on-empty)
  E2E=true go tool ginkgo run --timeout=60m ${CI:+--no-color} "$@" ${flags[@]+"${flags[@]}"} "./test/e2e/$dir"
}
beside() {
  local log=$reports/e2e-$1.log
  shift
  echo "running $* on $("$KUBEBUILDER_ASSETS/kube-apiserver" --version 2>/dev/null), logging to $log"
  ginkgo "$@" >"$log" 2>&1 &
  pids+=($!) logs+=("$log")
}
# faults are those with processes, of which one is drawn for each of RUNS.
faults() { SEED=${SEED:-1} RUNS=${RUNS:-$1} CHAOS_LOGS=$reports/chaos "${@:2}"; }
nodes() { MAKE=$make NODES_SUITE=test/e2e/$1 NODES_FLAGS="${*:2}" test/e2e/nodes/nodes.sh; }
# The metrics of the last demo are used if this controller was in it; otherwise a demo runs first.
monitoring() {
  [[ $(cat "$SCRAPES/controller" 2>/dev/null) == "$(cksum bin/karpenter-provider-bizflycloud)" ]] || "$make" --no-print-directory demo
  (cd test/e2e/monitoring && go test -count=1 -v . ${CI:+-ginkgo.no-color})
}

for suite; do
  case $suite in
    lifecycle | install) beside "$suite" "$suite" --procs="${PROCS:-3}" --label-filter=e2e ;;
    # The rehearsals of the migrations are pages of docs/: the other pages have no label e2e.
    migrations) beside "$suite" docs --procs="${PROCS:-3}" --label-filter=e2e ;;
    # UPDATE=true rewrites the outputs that the pages show. FOCUS=bke runs the pages whose path has this in it.
    docs) ginkgo docs --procs="${PROCS:-3}" ${FOCUS:+--focus="$FOCUS"} || status=$? ;;
    faults) faults 2 ginkgo faults --poll-progress-after=15m --timeout=6h || status=$? ;;
    nodes)
      nodes nodes ${FOCUS:+-ginkgo.focus="$FOCUS"} || status=$?
      [[ -n ${FOCUS:-} ]] || MAKE=$make test/e2e/nodes/interrupted.sh || status=$?
      ;;
    nodes-faults) faults 1 nodes faults || status=$? ;;
    nodes-docs) nodes docs "-ginkgo.focus=${FOCUS:-get-started/(own-cluster|bke).md}" || status=$? ;;
    monitoring) monitoring || status=$? ;;
    image) hack/release/image.sh check || status=$? ;;
    core) "$make" --no-print-directory core-e2e || status=$? ;;
    *) echo "SUITE=$suite is none of lifecycle install migrations docs faults nodes nodes-faults nodes-docs monitoring image core" >&2; exit 2 ;;
  esac
done
for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || status=$?; done
((${#logs[@]} == 0)) || cat "${logs[@]}"
exit $status
