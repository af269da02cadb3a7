// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	cloneNewCgroup    = 0x02000000
	prCapabilityDrop  = 24
	memoryOfMachines  = "/proc/meminfo"
	processorsFolder  = "/sys/devices/system/cpu"
	memoryNodesFolder = "/sys/devices/system/node"
)

// dropped are the capabilities that reach beyond the machine: clock, modules, ports of the hardware, and security modules.
var dropped = []uintptr{25, 16, 17, 33, 32}

// hostSettings are settings of the whole kernel that a kubelet writes, with the values that it wants. It writes them into files.
var hostSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// inside is what process 1 of a machine is told.
type inside struct {
	Spec
	Image, Dir, Disk, Pods string
	Groups                 []group
}

func (in *inside) root(name string) string { return filepath.Join(in.Dir, "root", name) }
func (in *inside) disk(name string) string { return filepath.Join(in.Dir, "disk", name) }

// Inside makes the machine around this process, which is the first of its namespaces, and becomes its init.
func Inside() error {
	// Control groups' namespaces and capabilities are those of a thread, and exec keeps this one's.
	runtime.LockOSThread()
	in := &inside{}
	if err := json.NewDecoder(os.Stdin).Decode(in); err != nil {
		return fmt.Errorf("waiting for the network: %w", err)
	}
	for _, step := range []func() error{
		in.enterGroups, in.connect, in.mountRoot, in.mountKernel, in.hideHost, in.showFlavor, in.mountDevices, in.mountGroups, in.configure, in.pivot,
		dropCapabilities,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	environment := []string{"PATH=" + path, "HOME=/root", "TERM=dumb", "container=sandbox", "product_name=OpenStack Nova"}
	return fmt.Errorf("starting init: %w", syscall.Exec("/sbin/init", []string{"/sbin/init"}, environment))
}

// enterGroups moves this process into the machine's control groups, which then are the roots that it sees.
func (in *inside) enterGroups() error {
	for _, g := range in.Groups {
		if err := os.WriteFile(filepath.Join(g.Path, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("entering the control group %s: %w", g.Path, err)
		}
	}
	if err := syscall.Unshare(cloneNewCgroup); err != nil {
		return fmt.Errorf("making a namespace of control groups: %w", err)
	}
	return nil
}

func (in *inside) connect() error {
	commands := []string{"link set lo up"}
	for _, address := range in.Addresses {
		commands = append(commands, "address add "+address+"/32 dev eth0")
	}
	commands = append(commands, "link set eth0 up", "route add "+Metadata+"/32 dev eth0")
	if len(in.Addresses) > 0 {
		commands = append(commands, "route add default via "+Metadata+" dev eth0 src "+in.Addresses[0])
	}
	for _, command := range commands {
		if err := ip(command); err != nil {
			return err
		}
	}
	return nil
}

// mountRoot mounts the disk, and the image below what the disk has of its own.
func (in *inside) mountRoot() error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping mounts inside: %w", err)
	}
	for _, dir := range []string{in.disk(""), in.root("")} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a root folder is everybody's to read
			return err
		}
	}
	if err := run("mount", "-o", "loop,discard", in.Disk, in.disk("")); err != nil {
		return err
	}
	for _, dir := range []string{"upper", "work", "containerd", "kubelet"} {
		if err := os.MkdirAll(in.disk(dir), 0o755); err != nil { //nolint:gosec // as above
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", in.Image, in.disk("upper"), in.disk("work"))
	if err := mount("overlay", in.root(""), "overlay", 0, options); err != nil {
		return err
	}
	// Containers have overlays of their own, which cannot lie on one; and the kubelet measures the disk by its folder.
	for _, name := range []string{"containerd", "kubelet"} {
		if err := in.bind(in.disk(name), "/var/lib/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (in *inside) mountKernel() error {
	for _, m := range []struct {
		target, kind string
		flags        uintptr
		options      string
	}{
		{"/proc", "proc", 0, ""}, {"/sys", "sysfs", syscall.MS_RDONLY, ""}, {"/run", "tmpfs", 0, "mode=755"}, {"/tmp", "tmpfs", 0, "mode=1777"},
	} {
		if err := mount(m.kind, in.root(m.target), m.kind, m.flags, m.options); err != nil {
			return err
		}
	}
	return nil
}

// hideHost makes the settings of the kernel read-only but for the network's, which are the machine's own, and lets a kubelet write
// the others that it wants into files.
func (in *inside) hideHost() error {
	settings, network := in.root("/proc/sys"), in.root("/proc/sys/net")
	if err := mount(settings, settings, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if err := mount(network, network, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	// Not recursively: the network's stay as they are.
	if err := mount("", settings, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	trigger := in.root("/proc/sysrq-trigger")
	if _, err := os.Stat(trigger); err == nil {
		if err := errors.Join(mount(trigger, trigger, "", syscall.MS_BIND, ""),
			mount("", trigger, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")); err != nil {
			return err
		}
	}
	for name, value := range hostSettings {
		if _, err := os.Stat(in.root("/proc/sys/" + name)); err != nil {
			continue // not in every kernel
		}
		if err := in.cover("/proc/sys/"+name, value+"\n"); err != nil {
			return err
		}
	}
	// Each boot has an id of its own, as on a machine with a kernel of its own.
	return in.cover("/proc/sys/kernel/random/boot_id", string(uuid.NewUUID())+"\n")
}

// showFlavor covers what tells programs the size of this machine, cadvisor above all.
func (in *inside) showFlavor() error {
	content, err := os.ReadFile(memoryOfMachines)
	if err != nil {
		return err
	}
	if err := in.cover(memoryOfMachines, meminfo(string(content), in.VisibleKiB)); err != nil {
		return err
	}
	// Without nodes of memory cadvisor counts the folders of processors, and takes into sets of processors only those that are online:
	// a machine may have more than this one.
	folder := filepath.Join(in.Dir, "cpu")
	online, err := os.ReadFile(processorsFolder + "/online")
	if err != nil {
		return err
	}
	files := map[string]string{"online": string(online), "possible": string(online), "present": string(online)}
	for i := range in.CPUs {
		topology := fmt.Sprintf("cpu%d/topology/", i)
		files[topology+"core_id"], files[topology+"physical_package_id"] = strconv.Itoa(i)+"\n", "0\n"
	}
	for name, value := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as /sys has it
			return err
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil { //nolint:gosec // as /sys has it
			return err
		}
	}
	if err := in.bind(folder, processorsFolder); err != nil {
		return err
	}
	if _, err := os.Stat(memoryNodesFolder); err != nil {
		return nil //nolint:nilerr // a kernel without them
	}
	return mount("tmpfs", in.root(memoryNodesFolder), "tmpfs", syscall.MS_RDONLY, "")
}

// meminfo is what a machine of that memory says instead of this one.
func meminfo(host string, visibleKiB int64) string {
	var b strings.Builder
	for line := range strings.Lines(host) {
		name, _, _ := strings.Cut(line, ":")
		switch {
		case name == "MemTotal" || name == "MemFree" || name == "MemAvailable":
			fmt.Fprintf(&b, "%-15s %d kB\n", name+":", visibleKiB)
		case strings.HasPrefix(name, "Swap"):
			fmt.Fprintf(&b, "%-15s 0 kB\n", name+":")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

func (in *inside) mountDevices() error {
	if err := mount("tmpfs", in.root("/dev"), "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, m := range []struct{ name, kind, options string }{
		{"pts", "devpts", "newinstance,ptmxmode=666"}, {"shm", "tmpfs", "mode=1777"}, {"mqueue", "mqueue", ""},
	} {
		if err := os.MkdirAll(in.root("/dev/"+m.name), 0o755); err != nil { //nolint:gosec // as /dev has it
			return err
		}
		if err := mount(m.kind, in.root("/dev/"+m.name), m.kind, 0, m.options); err != nil {
			return err
		}
	}
	for name, number := range map[string][2]int{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0}, "kmsg": {1, 11}, "fuse": {10, 229},
	} {
		if err := syscall.Mknod(in.root("/dev/"+name), syscall.S_IFCHR|0o666, number[0]<<8|number[1]); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
		if err := os.Chmod(in.root("/dev/"+name), 0o666); err != nil { //nolint:gosec // as /dev has it
			return err
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		if err := os.Symlink(target, in.root("/dev/"+name)); err != nil {
			return err
		}
	}
	return nil
}

// mountGroups mounts the control groups again: since enterGroups, their roots are the machine's own.
func (in *inside) mountGroups() error {
	const top = "/sys/fs/cgroup"
	for _, g := range in.Groups {
		if g.Mount != top {
			if err := mount("tmpfs", in.root(top), "tmpfs", 0, "mode=755"); err != nil {
				return err
			}
			break
		}
	}
	for _, g := range in.Groups {
		if err := os.MkdirAll(in.root(g.Mount), 0o755); err != nil { //nolint:gosec // as /sys has it
			return err
		}
		if err := mount(g.Kind, in.root(g.Mount), g.Kind, 0, g.Options); err != nil {
			return err
		}
	}
	return nil
}

// configure writes what a hypervisor's agent or the image's first boot would: name, console, and the network of pods.
func (in *inside) configure() error {
	if err := syscall.Sethostname([]byte(in.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	for name, content := range map[string]string{
		"/etc/hostname": in.Name + "\n", "/etc/hosts": "127.0.0.1 localhost\n127.0.1.1 " + in.Name + "\n", "/etc/resolv.conf": "",
		"/etc/machine-id": strings.ReplaceAll(in.ID, "-", "") + "\n",
		"/etc/cni/net.d/10-pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + in.Pods + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`,
	} {
		if err := os.WriteFile(in.root(name), []byte(content), 0o644); err != nil { //nolint:gosec // everybody's to read
			return err
		}
	}
	return in.bindFile(filepath.Join(in.Dir, "console.log"), "/var/log/console.log")
}

func (in *inside) pivot() error {
	if err := os.Chdir(in.root("")); err != nil {
		return err
	}
	old := "run"
	if err := syscall.PivotRoot(".", old); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := syscall.Unmount("/"+old, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	// The kubelet shares its mounts with containers.
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}

func dropCapabilities() error {
	for _, capability := range dropped {
		if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, prCapabilityDrop, capability, 0); err != 0 {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
	}
	return nil
}

// cover puts a file with that content over one of the kernel's.
func (in *inside) cover(target, content string) error {
	file := filepath.Join(in.Dir, "covers", strings.ReplaceAll(strings.Trim(target, "/"), "/", "."))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // as /proc has it
		return err
	}
	return mount(file, in.root(target), "", syscall.MS_BIND, "")
}

func (in *inside) bind(source, target string) error {
	if err := os.MkdirAll(in.root(target), 0o755); err != nil && !errors.Is(err, syscall.EROFS) { //nolint:gosec // a system's folder
		return err
	}
	return mount(source, in.root(target), "", syscall.MS_BIND, "")
}

func (in *inside) bindFile(source, target string) error {
	file, err := os.OpenFile(in.root(target), os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return mount(source, in.root(target), "", syscall.MS_BIND, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := syscall.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}
