#!/usr/bin/env bash
# Runs a suite of real nodes (NODES_SUITE, test/e2e/nodes without it) where nothing outside can notice it: in mount, network and process
# namespaces of its own, which the kernel ends with all that is in them when this script ends, in whatever way. What remains of a run that
# was killed are empty control groups and a folder of temporary files, which the next one removes. `make e2e SUITE=nodes`,
# SUITE=nodes-faults and SUITE=nodes-docs run it; test/e2e/nodes/nodes.sh COMMAND... runs another command instead. At its end it fails if anything is left.
# Below /proc/sys it changes nothing but settings of that network namespace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

say() { printf '%s\n' "--- nodes: $*"; }
# Where it cannot run, it is skipped, but for the machines of the workflows, which were chosen for it: a run without specs must not pass there.
skip() {
  say "skipped: $*"
  [[ -z ${GITHUB_ACTIONS:-} ]] || exit 1
  exit 0
}

[[ $(uname -s) == Linux ]] || skip "real machines are namespaces of Linux"
((EUID == 0)) || skip "not root: namespaces, mounts and control groups need it"
unshare --mount --net --pid --fork true 2>/dev/null || skip "root may not make namespaces here, as in most containers"
[[ -e /dev/loop-control ]] || skip "there are no loop devices, which the machines' disks are"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || skip "the kernel has no overlay file system"
missing=()
for need in debootstrap:debootstrap ip:iproute2 mkfs.ext4:e2fsprogs gcc:gcc pkg-config:pkg-config; do
  command -v "${need%:*}" >/dev/null || missing+=("${need#*:}")
done
[[ -e /usr/include/seccomp.h ]] || missing+=(libseccomp-dev)
[[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || missing+=(debian-archive-keyring)
if ((${#missing[@]})); then
  [[ -n ${CI:-} ]] || skip "${missing[*]} are missing: apt-get install ${missing[*]} (with CI=true they are installed)"
  command -v apt-get >/dev/null || skip "${missing[*]} are missing, and there is no apt-get to install them with"
  say "installing ${missing[*]}"
  mkdir -p .cache
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >.cache/nodes-apt.log 2>&1 ||
    { tail -n 20 .cache/nodes-apt.log; skip "apt-get could not install ${missing[*]} (above)"; }
fi

export NODES=true
folder=.
if (($# == 0)); then
  began=$SECONDS folder=${NODES_SUITE:-test/e2e/nodes}
  unfetched=.cache/node/root.unfetched
  rm -f "$unfetched"
  needs=(build controlplane sandbox-binary "$PWD"/.cache/tools/{helm,crane})
  [[ $folder != test/e2e/docs ]] || needs+=(plugin)
  "${MAKE:-make}" --no-print-directory "${needs[@]}"
  test/support/realnode/build.sh || {
    status=$?
    [[ ! -e $unfetched ]] || skip "Debian's packages for the machines could not be fetched (above)"
    exit "$status"
  }
  CGO_ENABLED=0 go test -trimpath -c -o .cache/bin/nodes.test "./$folder"
  say "built in $((SECONDS - began)) s"
  export CONTROLLER=$PWD/bin/karpenter-provider-bizflycloud SANDBOX=$PWD/.cache/bin/sandbox
  set -- .cache/bin/nodes.test -ginkgo.v -ginkgo.fail-on-empty -ginkgo.poll-progress-after=2m -ginkgo.timeout=55m -test.timeout=60m ${NODES_FLAGS:-}
  [[ -z ${CI:-} ]] || set -- "$@" -ginkgo.no-color
fi

# settings prints those of the kernel that kubelets, kube-proxy and Debian would change.
settings() {
  (cd /proc/sys && grep -s '' vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/pid_max kernel/core_pattern \
    net/ipv4/ip_forward net/ipv4/conf/all/rp_filter fs/protected_fifos) || true
}

# The number of the script's process tells the folder of a run that was killed, which is removed here, from one that is in use.
for old in "${TMPDIR:-/tmp}"/bizfly-nodes.*; do
  [[ ! -d $old ]] || kill -0 "${old##*.}" 2>/dev/null || rm -rf "$old"
done
scratch=${TMPDIR:-/tmp}/bizfly-nodes.$$
mkdir -m 700 "$scratch"
groups=bizfly-sandbox
before=$(settings)
# groups_removed removes control groups of network namespaces that are no more, by which they are named, and reports whether all of this
# run are gone.
groups_removed() {
  local group live left=0
  live=$(readlink /proc/[0-9]*/ns/net 2>/dev/null | sort -u)
  [[ ! -e $scratch/namespace ]] || ! grep -qFf "$scratch/namespace" <<<"$live" || left=1
  for group in /sys/fs/cgroup/"$groups"/* /sys/fs/cgroup/*/"$groups"/*; do
    [[ -d $group ]] && ! grep -qF "[${group##*/}]" <<<"$live" || continue
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || left=1
  done
  rmdir /sys/fs/cgroup/"$groups" /sys/fs/cgroup/*/"$groups" 2>/dev/null || true # with the last one
  return $left
}

# left_over prints what is left of this run: processes, mounts, loop devices, control groups.
left_over() {
  local namespace process
  namespace=$(cat "$scratch/namespace" 2>/dev/null) || return 0
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/ns/net" 2>/dev/null) != "$namespace" ]] || echo "process ${process#/proc/}: $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)"
  done
  awk -v dir="$scratch/" 'index($2, dir) == 1 { print "mount", $2 }' /proc/self/mounts
  grep -lsF "$scratch/" /sys/block/loop*/loop/backing_file || true
  find /sys/fs/cgroup/"$groups" /sys/fs/cgroup/*/"$groups" -maxdepth 1 -name "${namespace//[^0-9]/}" 2>/dev/null || true
}

# cleanup ends what is left of this run, and removes what it and runs that were killed have left.
cleanup() {
  local status=$? left="control groups of a network namespace that is no more"
  [[ -z ${inside:-} ]] || kill -KILL "$inside" 2>/dev/null || true
  wait 2>/dev/null || true
  # The kernel still counts processes in a group, and keeps a loop device, for a moment after their end.
  for _ in $(seq 100); do
    groups_removed && left=$(left_over) && [[ -z $left ]] && break
    sleep 0.1
  done
  rm -rf "$scratch"
  if [[ -n $left ]]; then
    say "FAILED: this is left:" && printf '%s\n' "$left"
    ((status)) || status=1
  else
    say "no process, mount, loop device, control group or file is left"
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The script's death ends unshare, and unshare's its process 1, and with that all others.
export TMPDIR=$scratch
setpriv --pdeathsig KILL unshare --mount --net --pid --ipc --fork --kill-child --mount-proc -- \
  bash -c 'readlink /proc/self/ns/net >"$TMPDIR/namespace" && ip link set lo up && ip address add 10.99.0.1/32 dev lo && cd "$1" && shift && "$@"' _ \
  "$folder" "$(command -v "$1" | sed 's#^\.#'"$PWD"'/.#')" "${@:2}" &
inside=$!
status=0
wait "$inside" || status=$?
inside=
if [[ $(settings) != "$before" ]]; then
  say "FAILED: settings of this machine's kernel have changed:"
  diff <(printf '%s\n' "$before") <(settings) || true
  status=1
fi
exit $status
