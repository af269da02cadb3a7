#!/usr/bin/env bash
# Measures: test/measure/run.sh bench|scale|bill, with BENCH_FLAGS. `make bench` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bin=$PWD/.cache/bin
mkdir -p "$bin"
# Flags that the caller has quoted, such as --focus 'a b'.
eval "flags=(${BENCH_FLAGS:-})"
case ${1:-} in
  # Processor time and allocations, as ratios of two measurements side by side: no absolute time is guaranteed or tested.
  # BENCH_ROUNDS=9 BENCH=InstanceTypes make bench
  bench)
    BENCH_ROUNDS=${BENCH_ROUNDS:-5} BENCH=${BENCH:-} go test -count=1 -v -timeout=30m -run='^Test(Bounds|Value)$' ./test/measure/bench
    ;;
  # Results merge into test/measure/scale/results.json, so that a part can be measured again: BENCH_FLAGS='--nodes 100 --scenarios up'. Only the page
  # from what is there: BENCH_FLAGS=--report
  scale)
    go build -o "$bin/scale" ./test/measure/scale
    go build -o "$bin/karpenter-kwok" sigs.k8s.io/karpenter/kwok
    KWOK_CONTROLLER=$bin/karpenter-kwok "$bin/scale" ${flags[@]+"${flags[@]}"}
    ;;
  # What workloads cost in several ways to run them, in simulated time, with core's own scheduler and consolidation. Only the page from
  # what is there: BENCH_FLAGS=report. Only some columns: BENCH_FLAGS=suggested,reference
  bill)
    (cd cmd/kubectl-bizfly && BENCH_BILL=${BENCH_FLAGS:-measure} go test -count=1 -v -timeout=1h -run=TestMeasure ./internal/bill)
    ;;
  *) echo "WHAT=${1:-} is neither bench, scale nor bill" >&2; exit 2 ;;
esac
