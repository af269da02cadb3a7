#!/usr/bin/env bash
# Interrupts test/e2e/nodes/nodes.sh while its machines run, in each way in which a run ends early, and fails if anything of it is left. The last
# part of `make e2e SUITE=nodes`. A run that was killed cannot clean up: the next one does it, which is interrupted by Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
set -m # each run is a process group of its own, as in a terminal, and has not learned from this shell to ignore SIGINT

log=$(mktemp) pid='' folders=() namespaces=()
say() { printf '%s\n' "--- nodes: $*"; }
failed() { say "FAILED: $*"; cat "$log"; exit 1; }
trap '[[ -z $pid ]] || kill -TERM "$pid" 2>/dev/null || true; wait; rm -f "$log"' EXIT

# until_true CONDITION...: waits until it is true, or the run has ended, or for five minutes.
until_true() {
  for _ in $(seq 1500); do
    "$@" && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  "$@"
}
# booted reports whether a machine of the run has come so far that it has a kubelet.
booted() {
  namespace=$(cat "$folder/namespace" 2>/dev/null) &&
    [[ -n $(find /sys/fs/cgroup -path "*/bizfly-sandbox/${namespace//[^0-9]/}/*/kubelet.service" -print -quit) ]]
}
processes() { find /proc/[0-9]*/ns/net -lname "net:\[${1//[^0-9]/}\]" 2>/dev/null; }
ended() { [[ -z $(processes "$namespace") ]]; }

# left_over prints what is left of all runs.
left_over() {
  local i
  for i in "${!folders[@]}"; do
    find "${folders[i]}" -maxdepth 0 2>/dev/null || true
    awk -v dir="${folders[i]}/" 'index($2, dir) == 1 { print "mount", $2 }' /proc/self/mounts
    grep -lsF "${folders[i]}/" /sys/block/loop*/loop/backing_file || true
    processes "${namespaces[i]}" || true
    find /sys/fs/cgroup -path "*/bizfly-sandbox/${namespaces[i]//[^0-9]/}" || true
  done
}

test/e2e/nodes/nodes.sh true >"$log" 2>&1 || failed "no machines can be started here"
if grep 'skipped: ' "$log"; then exit 0; fi
for signal in KILL INT TERM; do
  # Where the caller ignores SIGINT, as a shell's background does, so would the run.
  NODES_FLAGS=-ginkgo.focus=pending env --default-signal=INT test/e2e/nodes/nodes.sh >"$log" 2>&1 &
  pid=$! folder=${TMPDIR:-/tmp}/bizfly-nodes.$!
  until_true booted || {
    if grep 'skipped: ' "$log"; then exit 0; fi # Debian's packages could not be fetched
    failed "no machine has booted"
  }
  folders+=("$folder") namespaces+=("$namespace")
  # A terminal sends it to all of the group, others to the script alone.
  if [[ $signal == INT ]]; then kill -INT -- "-$pid"; else kill "-$signal" "$pid"; fi
  status=0 && { wait "$pid"; } 2>/dev/null || status=$? # it would say that one was killed
  ((status == 128 + $(kill -l "$signal"))) || failed "the run ended with status $status after SIG$signal"
  pid=$$ until_true ended || failed "processes are left after SIG$signal"
  [[ $signal == KILL ]] || grep -q 'or file is left$' "$log" || failed "the run did not look for what is left after SIG$signal"
  pid=''
done
left=$(left_over)
[[ -z $left ]] || failed "this is left of interrupted runs:"$'\n'"$left"
say "nothing is left of runs that were killed, interrupted and terminated"
