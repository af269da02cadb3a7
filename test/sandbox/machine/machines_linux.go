// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// podNetworks is where the pods of each machine have a network of 254 addresses.
	podNetworks = "10.98.%d.0/24"
	maxMachines = 254
	// cgroupRoot is the group of all our machines in each hierarchy.
	cgroupRoot = "bizfly-sandbox"
)

// Machines are the machines of one sandbox.
type Machines struct {
	opts        Options
	hierarchies []hierarchy
	server      *http.Server
	// spawn runs on one thread what starts machines: the kernel ends a machine with the thread that started it.
	spawn chan func()

	most int // how many machines may exist

	mu       sync.Mutex
	machines map[string]*box
}

// box is one machine.
type box struct {
	Spec
	number int // of its network interface and its pods' network

	power   sync.Mutex // held while it is powered on or off
	cmd     *exec.Cmd
	done    chan struct{} // closed when process 1 has ended
	wanted  bool          // that it runs
	deleted bool
}

// New starts the metadata service. It adds an address to the loopback interface, and a route and an interface for each machine, so it
// refuses a network namespace in which somebody else might need them.
func New(opts Options) (*Machines, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	m := &Machines{opts: opts, spawn: make(chan func()), machines: map[string]*box{}}
	for _, step := range []func() error{alone, m.prepare, route, m.serve} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	go func() {
		runtime.LockOSThread()
		for start := range m.spawn {
			start()
		}
	}()
	return m, nil
}

// alone returns an error where this process may not make machines, or shares its network with others.
func alone() error {
	if os.Geteuid() != 0 {
		return errors.New("real machines need root, for namespaces, mounts and control groups")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		if i.Flags&net.FlagLoopback == 0 && len(addresses) > 0 {
			return fmt.Errorf("real machines change the network: start the sandbox in a network namespace of its own (test/e2e/nodes/nodes.sh), not beside %s", i.Name)
		}
	}
	return nil
}

// prepare finds the image, and makes the folder and the control groups of all machines.
func (m *Machines) prepare() error {
	var err error
	for _, dir := range []*string{&m.opts.Image, &m.opts.Dir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(m.opts.Image, "sbin", "init")); err != nil {
		return fmt.Errorf("the image of the machines (test/support/realnode/build.sh): %w", err)
	}
	if err := os.MkdirAll(m.opts.Dir, 0o700); err != nil {
		return err
	}
	// The network namespace is this sandbox's alone, so its number tells its groups from those of others.
	namespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("looking for the network namespace: %w", err)
	}
	if m.hierarchies, err = hierarchies(filepath.Join(cgroupRoot, strings.Trim(namespace, "net:[]"))); err != nil {
		return err
	}
	m.most, err = mostMachines()
	return err
}

// route makes this namespace the router of all machines.
func route() error {
	for _, args := range []string{"link set lo up", "address replace " + Metadata + "/32 dev lo"} {
		if err := ip(args); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("routing between machines: %w", err)
	}
	return nil
}

// serve starts the metadata service.
func (m *Machines) serve() error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(Metadata, "80"))
	if err != nil {
		return fmt.Errorf("starting the metadata service: %w", err)
	}
	m.server = &http.Server{Handler: service(m.at), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = m.server.Serve(listener) }()
	return nil
}

// at finds the machine of an address.
func (m *Machines) at(address string) (Spec, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.machines {
		for _, own := range b.Addresses {
			if own == address {
				return b.Spec, true
			}
		}
	}
	return Spec{}, false
}

// PowerOn boots a machine, which has what its disk had when it was powered off.
func (m *Machines) PowerOn(_ context.Context, spec Spec) error {
	b, err := m.box(spec)
	if err != nil {
		return err
	}
	b.power.Lock()
	defer b.power.Unlock()
	return m.boot(b)
}

// box returns the machine of a server, with what the server is like now.
func (m *Machines) box(spec Spec) (*box, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.machines[spec.ID]; known != nil {
		known.Spec = spec
		return known, nil
	}
	taken := map[int]bool{}
	for _, b := range m.machines {
		taken[b.number] = true
	}
	for number := 1; number <= m.most; number++ {
		if !taken[number] {
			b := &box{Spec: spec, number: number}
			m.machines[spec.ID] = b
			return b, nil
		}
	}
	return nil, fmt.Errorf("there are %d machines already, all that fs.inotify.max_user_instances of this kernel lets start", m.most)
}

// mostMachines is how many machines may exist: all of them share the kernel's limit of watchers, and systemd waits in silence for one.
func mostMachines() (int, error) {
	const (
		each   = 15 // systemd 4, the kubelet 7, containerd 2, D-Bus and kube-proxy 1
		others = 16 // a control plane, the controller, and what else this machine runs
	)
	content, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return 0, fmt.Errorf("reading the limit of watchers: %w", err)
	}
	instances, err := strconv.Atoi(strings.TrimSpace(string(content)))
	return min((instances-others)/each, maxMachines), err
}

// boot starts process 1 of a machine whose power is off.
func (m *Machines) boot(b *box) error {
	if b.running() || b.deleted {
		return nil
	}
	dir := filepath.Join(m.opts.Dir, b.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	disk := filepath.Join(dir, "disk.img")
	if err := makeDisk(disk, b.DiskGiB); err != nil {
		return err
	}
	inner := inside{
		Spec: b.Spec, Image: m.opts.Image, Dir: dir, Disk: disk, Pods: fmt.Sprintf(podNetworks, b.number),
	}
	for _, h := range m.hierarchies {
		group, err := h.create(b.ID, int64(b.MemoryMiB)<<20)
		if err != nil {
			return err
		}
		inner.Groups = append(inner.Groups, group)
	}
	console, err := os.OpenFile(filepath.Join(dir, "console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // in our folder
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	command := exec.CommandContext(context.Background(), "/proc/self/exe", Command)
	command.Stdout, command.Stderr, command.Env = console, console, []string{"PATH=" + path}
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	started := make(chan error)
	m.spawn <- func() { started <- command.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting machine %s: %w", b.Name, err)
	}
	b.cmd, b.done, b.wanted = command, make(chan struct{}), true
	go m.wait(b, command, b.done)
	// It waits for its network, and then for what it is.
	err = m.connect(b, command.Process.Pid)
	if err == nil {
		err = json.NewEncoder(stdin).Encode(inner)
	}
	if err = errors.Join(err, stdin.Close()); err != nil {
		return errors.Join(fmt.Errorf("starting machine %s: %w", b.Name, err), b.kill())
	}
	m.opts.Log.Info("power on", "server", b.Name, "id", b.ID)
	return nil
}

// connect gives a machine its network interface. The kernel removes both ends and the routes with the machine's namespace.
func (m *Machines) connect(b *box, pid int) error {
	name := "machine" + strconv.Itoa(b.number)
	_ = ip("link delete " + name) // of a namespace that the kernel has not removed yet
	commands := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", name, b.mac(), pid),
		"link set " + name + " up",
	}
	for _, address := range b.Addresses {
		commands = append(commands, "route replace "+address+"/32 dev "+name)
	}
	if len(b.Addresses) > 0 {
		commands = append(commands, "route replace "+fmt.Sprintf(podNetworks, b.number)+" via "+b.Addresses[0]+" dev "+name)
	}
	for _, command := range commands {
		if err := ip(command); err != nil {
			return err
		}
	}
	return nil
}

// wait follows process 1 of a machine. One that asked for a reboot gets it; any other end is that of the power.
func (m *Machines) wait(b *box, command *exec.Cmd, done chan struct{}) {
	_ = command.Wait()
	close(done)
	status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
	m.opts.Log.Info("power off", "server", b.Name, "id", b.ID, "how", command.ProcessState.String())
	// What reboot(2) does to process 1 of a namespace.
	if status.Signaled() && status.Signal() == syscall.SIGHUP {
		b.power.Lock()
		defer b.power.Unlock()
		if b.wanted && b.done == done {
			if err := m.boot(b); err != nil {
				m.opts.Log.Error("a machine did not boot again", "server", b.Name, "error", err)
			}
		}
	}
}

func (b *box) running() bool {
	if b.done == nil {
		return false
	}
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// kill ends process 1, and so the whole machine.
func (b *box) kill() error {
	b.wanted = false
	if !b.running() {
		return nil
	}
	_ = b.cmd.Process.Kill()
	select {
	case <-b.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("machine %s survived the end of its process 1", b.Name)
	}
}

// PowerOff takes the power from a machine, without a word to it. Its disk stays.
func (m *Machines) PowerOff(id string) error {
	m.mu.Lock()
	b := m.machines[id]
	m.mu.Unlock()
	if b == nil {
		return nil
	}
	b.power.Lock()
	defer b.power.Unlock()
	return b.kill()
}

// Delete takes a machine away with its disk. Its console stays.
func (m *Machines) Delete(id string) error {
	m.mu.Lock()
	b := m.machines[id]
	m.mu.Unlock()
	if b == nil {
		return nil
	}
	b.power.Lock()
	defer b.power.Unlock()
	b.deleted = true
	if err := b.kill(); err != nil {
		return err
	}
	for _, h := range m.hierarchies {
		h.remove(id)
	}
	if err := os.Remove(filepath.Join(m.opts.Dir, id, "disk.img")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the disk of machine %s: %w", b.Name, err)
	}
	m.mu.Lock()
	delete(m.machines, id)
	m.mu.Unlock()
	return nil
}

// Close deletes all machines.
func (m *Machines) Close() error {
	m.mu.Lock()
	var ids []string
	for id := range m.machines {
		ids = append(ids, id)
	}
	m.mu.Unlock()
	var all []error
	for _, id := range ids {
		all = append(all, m.Delete(id))
	}
	for _, h := range m.hierarchies {
		h.remove("")
	}
	close(m.spawn)
	return errors.Join(append(all, m.server.Close())...)
}

// makeDisk makes a disk that takes no more room than what is written to it. Of a cloud image for servers the first GiB is for booting, and
// the journal has the size of the few GiB that the image's file system had before it grew to the rest.
func makeDisk(name string, gib int) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(name, int64(gib)<<30); err != nil {
		return err
	}
	return run("mkfs.ext4", "-q", "-m", "0", "-J", "size=64", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", name, fmt.Sprintf("%dG", gib-1))
}

func ip(arguments string) error { return run("ip", strings.Fields(arguments)...) }

func run(name string, args ...string) error {
	if output, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput(); err != nil { //nolint:gosec // ip, mkfs, mount
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}
