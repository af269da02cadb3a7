#!/usr/bin/env bash
# Makes the root file system that servers of the sandbox boot as real machines: Debian with systemd and cloud-init, and what
# build.sh has built. test/support/realnode/image.sh BINARIES ROOT. It needs root on Debian or Ubuntu, and Debian's packages. Where they
# could not be fetched, it leaves ROOT.unfetched, since make hides the exit status of a recipe.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 root=$2
suite=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=systemd,systemd-sysv,dbus,cloud-init,iproute2,nftables,iptables,conntrack,ethtool,socat,mount,util-linux,kmod,procps,netbase,ca-certificates,curl

[[ $(uname -s) == Linux ]] && ((EUID == 0)) || { echo "the root file system of nodes is made by root on Linux only" >&2; exit 1; }
# Without Debian's keys, debootstrap would take whatever the mirror answers, and run it as root.
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
command -v debootstrap >/dev/null && [[ -s $keyring ]] || { echo "missing: apt-get install debootstrap debian-archive-keyring" >&2; exit 1; }

# A base of the same recipe is used again: mostly binaries and the contents of files change. What an older recipe has left would stay in it.
recipe=$(cd "$here" && { cat image.sh && find files | LC_ALL=C sort; } | sha256sum)
if [[ $(cat "$root/etc/base" 2>/dev/null) != "$recipe" ]]; then
  rm -rf "$root" && mkdir -p "$root"
  log=$root.log
  # debootstrap does not resolve packages that others stand in for, and stops at the first that depends on one: apt carries on.
  # What it mounts is gone with the namespace.
  unshare --mount --fork --pid --mount-proc bash -euc '
    # apt is there only after the signature of the release was verified, and verifies it again.
    debootstrap --force-check-gpg --keyring="$5" --variant=minbase --include="$3" "$1" "$2" "$4" || [[ -x $2/usr/bin/apt-get ]]
    mountpoint -q "$2/proc" || mount -t proc proc "$2/proc"
    printf "#!/bin/sh\nexit 101\n" >"$2/usr/sbin/policy-rc.d" && chmod 755 "$2/usr/sbin/policy-rc.d"
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C
    echo "deb $4 $1 main" >"$2/etc/apt/sources.list"
    chroot "$2" dpkg --configure -a || true
    chroot "$2" apt-get -y --no-install-recommends -f install
    chroot "$2" apt-get -y --no-install-recommends install ${3//,/ }
    chroot "$2" apt-get clean' _ "$suite" "$root" "$packages" "$mirror" "$keyring" >"$log" 2>&1 ||
    {
      tail -n 30 "$log" >&2
      grep -qE "^E: (Failed getting release|Couldn't download|Failed to fetch|Unable to fetch)" "$log" && touch "$root.unfetched"
      exit 1
    }
  rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale} "$root/usr/sbin/policy-rc.d"
  # The kernel's settings are those of the machine that runs the tests, which nothing here may change.
  rm -f "$root"/etc/sysctl.d/*.conf "$root"/usr/lib/sysctl.d/*.conf
  # A kernel that is not the image's own, no hardware, no logins, no packages from elsewhere.
  for unit in systemd-udevd.service systemd-udev-trigger.service systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service \
    systemd-timesyncd.service getty@.service console-getty.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer fstrim.timer systemd-logind.service sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount; do
    ln -sfn /dev/null "$root/etc/systemd/system/$unit"
  done
  # The network is there before the machine boots, and nothing answers DHCP: cloud-init would wait for a minute.
  rm -f "$root/usr/sbin/dhclient"
  ln -sfn /usr/lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
  : >"$root/etc/machine-id"
  echo "$recipe" >"$root/etc/base"
fi

cp -a "$here/files/." "$root/"
chown -R 0:0 "$root/etc/containerd" "$root/etc/systemd/system" "$root/etc/cloud/cloud.cfg.d" "$root/usr/local/bin"
# The registry of the tests speaks http, and has the pause image of registry.k8s.io. A Go module may have no file whose name has a colon.
for registry in 10.99.0.1:5000 registry.k8s.io; do
  mkdir -p "$root/etc/containerd/certs.d/$registry"
  echo 'server = "http://10.99.0.1:5000"' >"$root/etc/containerd/certs.d/$registry/hosts.toml"
done

install -d "$root/opt/cni/bin" "$root/etc/cni/net.d" "$root/etc/kubernetes/manifests"
install "$binaries"/cni/* "$root/opt/cni/bin/"
install "$binaries"/{containerd,containerd-shim-runc-v2,ctr,runc} "$root/usr/bin/"
install "$binaries/kubernetes" "$root/usr/bin/kubelet"
ln -sfn kubelet "$root/usr/bin/kubeadm"
ln -sfn kubelet "$root/usr/bin/kube-proxy"
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
for unit in containerd.service kubelet.service kube-proxy.path; do ln -sfn "/etc/systemd/system/$unit" "$wants/$unit"; done

# modprobe of what a template loads succeeds without a module of this kernel: it has them built in, or works without.
modules=$root/lib/modules/$(uname -r)
mkdir -p "$modules"
printf 'kernel/fs/overlayfs/overlay.ko\nkernel/net/bridge/br_netfilter.ko\n' >"$modules/modules.builtin"
touch "$modules"/modules.{order,builtin.modinfo}
chroot "$root" depmod "$(uname -r)"
