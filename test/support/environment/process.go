// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tailLines is how much of a log is quoted when its process ended unexpectedly.
const tailLines = 25

// command is what a process is started with.
type command struct {
	name string
	path string
	args []string
	// env is the whole environment: nothing is inherited, so that a developer's own credentials never reach a test.
	env []string
	log string
}

// process is a started command that leads its own process group.
type process struct {
	command
	cmd      *exec.Cmd
	stopping atomic.Bool
	// done is closed when the process has ended; err is how and may be read from then on.
	done chan struct{}
	err  error
}

// spawner runs what it is sent on one thread that is never given back: the kernel kills our children when the thread
// that started them ends, and that must be when this program ends and not before.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// start starts a command. onExit is called, in its own goroutine, when it ends without having been stopped.
func start(c command, onExit func(error)) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(c.log), 0o750); err != nil {
		return nil, fmt.Errorf("making the log directory of %s: %w", c.name, err)
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }() // the child has a descriptor of its own
	p := &process{command: c, done: make(chan struct{})}
	// Not the caller's context: it may end while stop still has servers to end after their clients.
	p.cmd = exec.CommandContext(context.Background(), c.path, c.args...) //nolint:gosec // the binaries are ours
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = c.env, log, log
	p.cmd.SysProcAttr = processGroup()

	started := make(chan error)
	spawner() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
		if err := p.failure(); err != nil && onExit != nil {
			onExit(err)
		}
	}()
	return p, nil
}

// failure describes an unexpected exit; nil is that of a process that was stopped.
func (p *process) failure() error {
	if p.stopping.Load() {
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended unexpectedly (%s); its last lines were:\n%s", p.name, how, tail(p.log, tailLines))
}

// exited reports whether the process has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and its children: SIGTERM, and SIGKILL after the grace.
func (p *process) stop(grace time.Duration) error {
	p.stopping.Store(true)
	_ = p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	return p.kill()
}

// kill ends the process group without a chance to clean up.
func (p *process) kill() error {
	p.stopping.Store(true)
	// Also after the leader's end: what it started belongs to the group.
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && !p.exited() {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s (pid %d) survived SIGKILL", p.name, p.cmd.Process.Pid)
	}
}

// signal sends a signal to the process group.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// wait waits until the process ends by itself.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.name, context.Cause(ctx))
	}
}

// tail returns the last lines of a file, indented. It reads no more than the end of the file.
func tail(path string, lines int) string {
	const most = 64 << 10
	f, err := os.Open(path) //nolint:gosec // a log of ours
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	content, _ := io.ReadAll(io.LimitReader(f, most))
	all := strings.Split(string(bytes.TrimSpace(content)), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}
