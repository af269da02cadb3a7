// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// controllerGrace is how long the controller may take to end: as long as Kubernetes gives a pod would be too patient
// for a test, and a user who interrupts a demo does not want to wait.
const controllerGrace = 10 * time.Second

// startPatience is how long a process may take to start: what a busy machine may need. One that dies ends the wait at once, except for that of
// envtest for custom resource definitions.
const startPatience = 5 * time.Minute

// BatchIdle is BATCH_IDLE_DURATION of the controllers: with core's one second, a machine that stands still for as long while a ReplicaSet creates its
// pods would split them over two batches, and so over more servers.
const BatchIdle = "3s"

// Controller is a running controller.
type Controller struct {
	process *process
	metrics int
	health  int
}

// BinaryOverride is the override that names another binary than the controller's, for example that of another provider.
const BinaryOverride = "CONTROLLER"

// StartController starts the controller and waits until it is ready. The overrides win over those of Options; an empty
// value removes the variable.
func (e *Environment) StartController(ctx context.Context, overrides map[string]string) (*Controller, error) {
	c, err := e.newController(ctx, overrides, e.fail)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.controller = c
	e.mu.Unlock()
	url := "http://" + local(c.health) + "/readyz"
	return c, e.await(ctx, "controller", startPatience, func(ctx context.Context) (bool, error) {
		return answers(ctx, http.DefaultClient, url), nil
	})
}

// RestartController stops the controller that was started last and starts another, as StartController does.
func (e *Environment) RestartController(ctx context.Context, overrides map[string]string) (*Controller, error) {
	if err := e.Controller().Stop(); err != nil {
		return nil, err
	}
	return e.StartController(ctx, overrides)
}

// RunController starts the controller where it is expected to exit, and returns its output and how it ended.
func (e *Environment) RunController(ctx context.Context, overrides map[string]string) (string, error) {
	log := e.logPath("controller")
	before := size(log)
	c, err := e.newController(ctx, overrides, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.process.kill() }()
	err = c.process.wait(ctx)
	content, readErr := os.ReadFile(log) //nolint:gosec // a log of ours
	if readErr != nil {
		return "", fmt.Errorf("reading the controller's log: %w", readErr)
	}
	return string(content[min(before, len(content)):]), err
}

// StartReplica starts a controller that may end by itself, as one does that has lost its lease. ended is then called with the reason,
// in a goroutine of its own; the environment remains. It does not wait until the controller is ready.
func (e *Environment) StartReplica(ctx context.Context, overrides map[string]string, ended func(error)) (*Controller, error) {
	return e.newController(ctx, overrides, ended)
}

func (e *Environment) newController(ctx context.Context, overrides map[string]string, onExit func(error)) (*Controller, error) {
	path, err := e.binary(ctx, "CONTROLLER", "cmd/controller")
	if err != nil {
		return nil, err
	}
	if other := overrides[BinaryOverride]; other != "" {
		path = other
	}
	config := filepath.Join(e.dir, "controller.kubeconfig")
	if err := e.pki.kubeconfig(config, e.server, ControllerUser, "system:masters"); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	c := &Controller{metrics: ports[0], health: ports[1]}
	env := map[string]string{
		"KUBECONFIG":              config,
		"CLUSTER_NAME":            "sandbox",
		"DISABLE_LEADER_ELECTION": "true",
		"METRICS_PORT":            strconv.Itoa(c.metrics),
		"HEALTH_PROBE_PORT":       strconv.Itoa(c.health),
		"LOG_LEVEL":               "info",
		"BATCH_IDLE_DURATION":     BatchIdle,
		// The sandbox speaks http, which the controller rejects unless it is allowed.
		"BIZFLY_CLOUD_ALLOW_HTTP": "true",
	}
	maps.Copy(env, e.proxy.env())
	maps.Copy(env, e.sandbox.env)
	maps.Copy(env, e.options.ControllerEnv)
	maps.Copy(env, overrides)
	list := baseEnv()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if env[name] != "" && name != BinaryOverride {
			list = append(list, name+"="+env[name])
		}
	}
	c.process, err = e.launch(command{name: "controller", path: path, env: list, log: e.logPath("controller")}, onExit)
	return c, err
}

// Controller is the controller that was started last, nil before that.
func (e *Environment) Controller() *Controller {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.controller
}

// Stop ends the controller as Kubernetes would: SIGTERM, then SIGKILL.
func (c *Controller) Stop() error { return c.process.stop(controllerGrace) }

// Kill ends the controller at once, as a crash or a lost machine would.
func (c *Controller) Kill() error { return c.process.kill() }

// Freeze lets the controller stand still, as a machine does that is short of memory or is being moved, until Thaw.
func (c *Controller) Freeze() error { return c.process.signal(syscall.SIGSTOP) }

// Thaw lets a controller that stands still go on with what it was doing.
func (c *Controller) Thaw() error { return c.process.signal(syscall.SIGCONT) }

// PID is the controller's process.
func (c *Controller) PID() int { return c.process.cmd.Process.Pid }

// Ready reports whether the controller answers that it is ready.
func (c *Controller) Ready(ctx context.Context) bool {
	return answers(ctx, http.DefaultClient, "http://"+local(c.health)+"/readyz")
}

// MetricsURL is where the controller's metrics are read.
func (c *Controller) MetricsURL() string { return "http://" + local(c.metrics) + "/metrics" }

// HealthURL is where the controller's probes are answered: "healthz" and "readyz" below it.
func (c *Controller) HealthURL() string { return "http://" + local(c.health) + "/" }

func size(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return int(info.Size())
}
