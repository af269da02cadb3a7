// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// apiServerGrace is how long kube-apiserver may take to end when it is stopped: by then it has closed its listener and
// waits for open watches.
const apiServerGrace = 3 * time.Second

// StopAPIServer ends kube-apiserver, as an upgrade does or, at once, as a crash does. Everything else continues without it.
func (e *Environment) StopAPIServer(crash bool) error {
	e.mu.Lock()
	i := slices.IndexFunc(e.processes, func(p *process) bool { return p.name == apiServer && !p.exited() })
	if i < 0 {
		e.mu.Unlock()
		return errors.New("kube-apiserver does not run")
	}
	running := e.processes[i]
	e.mu.Unlock()
	if crash {
		return running.kill()
	}
	return running.stop(apiServerGrace)
}

// StartAPIServer starts kube-apiserver again, at the same address and with the same etcd, and waits until it is ready.
func (e *Environment) StartAPIServer(ctx context.Context) error {
	// A connection of this machine may have taken its port meanwhile, so that the first attempts may fail.
	var err error
	for range 5 {
		if err = e.tryAPIServer(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

func (e *Environment) tryAPIServer(ctx context.Context) error {
	path, err := e.asset(apiServer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ready atomic.Bool
	p, err := e.launch(command{name: apiServer, path: path, args: e.apiServer, env: baseEnv(), log: e.logPath(apiServer)}, func(how error) {
		if ready.Load() {
			e.fail(how)
		}
		cancel(how)
	})
	if err != nil {
		return err
	}
	if err := e.awaitAPIServer(ctx); err != nil {
		return errors.Join(err, p.kill())
	}
	ready.Store(true)
	if p.exited() {
		return p.failure()
	}
	return nil
}
