// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environment starts everything that a cluster with this provider consists of, as real processes on the
// loopback interface: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK for the kubelets, the sandbox
// for BizFly Cloud, and the controller. The demo, the sandbox command and the end-to-end suite share it.
package environment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// Options are what to start. The zero value is a complete environment in a temporary directory.
type Options struct {
	// Dir is where certificates, kubeconfigs, data and logs go; empty is a temporary directory. Stop removes it.
	Dir string
	// Latency is how long the sandbox takes to make or delete a server, Boot how long an active server takes to join.
	Latency, Boot time.Duration
	// Seed makes the sandbox's ids and faults reproducible.
	Seed int64
	// NodeLease is how long a node is taken for alive without a word from it; 0 is short, so that a test sees a server die.
	// Hundreds of nodes that speak every few seconds keep a small machine busy.
	NodeLease time.Duration
	// SchedulerConfig is a KubeSchedulerConfiguration, as YAML, that kube-scheduler is started with; empty is its defaults.
	SchedulerConfig string
	// KwokNodes lets KWOK keep the nodes alive that carry its own annotation, as those of core's kwok provider do, instead of
	// the living servers of the sandbox.
	KwokNodes bool
	// Machines lets servers be real machines, which join by real kubelets, without KWOK. Only inside of test/e2e/nodes/nodes.sh.
	Machines bool
	// SandboxArgs are further arguments of the sandbox.
	SandboxArgs []string
	// Pods answers what is sent to port 8080 of any pod through the API server: by a port forward, or by its proxy. Nil leaves pods
	// without a network.
	Pods http.Handler
	// Audit makes the API server write down what the controller and service accounts ask for: AuditEvents.
	Audit bool
	// NoCRDs leaves the custom resource definitions out, for suites that install them in another way.
	NoCRDs bool
	// NoController leaves the controller out; StartController starts it later.
	NoController bool
	// ControllerEnv overrides the controller's environment; an empty value removes the variable.
	ControllerEnv map[string]string
	// Progress is called with each step; nil prints nothing.
	Progress func(string)
}

// Environment is what Start has started.
type Environment struct {
	options Options
	root    string
	dir     string

	pki        *authority
	server     string
	apiServer  []string // its arguments, with which it is started again
	kubeconfig string
	config     *rest.Config
	client     client.Client
	proxy      *proxy
	egress     *egress
	kwok       int // the port of its server
	sandbox    *Sandbox

	// ctx ends, with the reason as its cause, when a process ends that should run.
	ctx  context.Context
	fail context.CancelCauseFunc

	mu         sync.Mutex
	processes  []*process
	controller *Controller
	stopped    bool
}

// Start starts an environment and returns when it is ready to use. Whatever it has started is stopped again when it
// returns an error.
func Start(ctx context.Context, options Options) (*Environment, error) {
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	e := &Environment{options: options, dir: options.Dir}
	e.ctx, e.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (e *Environment) start(ctx context.Context) (err error) {
	if e.root, err = moduleRoot(); err != nil {
		return err
	}
	if err := e.makeDir(); err != nil {
		return err
	}
	if e.proxy, err = startProxy(); err != nil {
		return err
	}
	e.options.Progress("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK")
	if err := e.startControlPlane(ctx); err != nil {
		return err
	}
	if e.client, err = client.New(e.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if !e.options.NoCRDs {
		e.options.Progress("installing the custom resource definitions")
		if err := e.installCRDs(); err != nil {
			return err
		}
	}
	if err := e.awaitServiceAccount(ctx); err != nil {
		return err
	}
	if e.options.Machines {
		if err := e.prepareJoins(ctx); err != nil {
			return err
		}
	}
	e.options.Progress("starting the BizFly Cloud sandbox")
	for _, start := range []func(context.Context) error{e.startRegistry, e.startSandbox, e.serveJoins} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if e.options.NoController {
		return nil
	}
	e.options.Progress("starting the controller")
	_, err = e.StartController(ctx, nil)
	return err
}

// makeDir makes the directory that was asked for, or a temporary one.
func (e *Environment) makeDir() (err error) {
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "karpenter-bizflycloud-"); err != nil {
			return fmt.Errorf("making a temporary directory: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(e.dir, 0o750); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	return nil
}

// installCRDs installs this provider's and core's definitions and waits until they are served.
func (e *Environment) installCRDs() error {
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(apis.CRDs))
	for _, crd := range apis.CRDs {
		crds = append(crds, crd.DeepCopy())
	}
	if _, err := envtest.InstallCRDs(e.config, envtest.CRDInstallOptions{CRDs: crds, Scheme: runtime.NewScheme(), MaxTime: startPatience}); err != nil {
		return fmt.Errorf("installing the custom resource definitions: %w", err)
	}
	return nil
}

// Context ends when Stop is called or a process that should run has ended; context.Cause returns which, with the last
// lines of its log.
func (e *Environment) Context() context.Context { return e.ctx }

// Kubeconfig is the path of a kubeconfig with every right.
func (e *Environment) Kubeconfig() string { return e.kubeconfig }

// Client is an uncached client with every right.
func (e *Environment) Client() client.Client { return e.client }

// Sandbox is the cloud.
func (e *Environment) Sandbox() *Sandbox { return e.sandbox }

// Dir is where everything of this environment lives; logs are in its folder logs.
func (e *Environment) Dir() string { return e.dir }

// ForeignRequests counts what the controller tried to send to hosts other than this machine, with those hosts.
func (e *Environment) ForeignRequests() (int, []string) { return e.proxy.seen() }

// Log returns the last lines of a process's log.
func (e *Environment) Log(name string, lines int) string { return tail(e.logPath(name), lines) }

func (e *Environment) logPath(name string) string {
	return filepath.Join(e.dir, "logs", name+".log")
}

// Stop ends every process, in any state, and removes the directory. It takes at most half a minute.
func (e *Environment) Stop() error {
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return nil
	}
	e.stopped = true
	processes := slices.Clone(e.processes)
	e.mu.Unlock()
	for _, p := range processes {
		p.stopping.Store(true) // from here on an end is nothing unexpected
	}
	e.fail(errors.New("the environment was stopped"))

	// Clients before servers: etcd last, the API server before it, everything else first and together.
	var errs []error
	for _, names := range [][]string{nil, {apiServer}, {"etcd"}} {
		var group sync.WaitGroup
		var mu sync.Mutex
		for _, p := range processes {
			server := p.name == "etcd" || p.name == apiServer
			if names == nil && server || names != nil && !slices.Contains(names, p.name) {
				continue
			}
			group.Go(func() {
				err := p.stop(5 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		group.Wait()
	}
	if e.proxy != nil {
		errs = append(errs, e.proxy.close())
	}
	if e.egress != nil {
		errs = append(errs, e.egress.close())
	}
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

// run starts one of the control plane's binaries, which must then run until the end.
func (e *Environment) run(name string, args ...string) error {
	path, err := e.asset(name)
	if err != nil {
		return err
	}
	_, err = e.launch(command{name: name, path: path, args: args, env: baseEnv(), log: e.logPath(name)}, e.fail)
	return err
}

// launch starts a process and remembers it for Stop.
func (e *Environment) launch(c command, onExit func(error)) (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, fmt.Errorf("starting %s: the environment was stopped", c.name)
	}
	p, err := start(c, onExit)
	if err != nil {
		return nil, err
	}
	// The ended ones are dropped, so that a test may restart the controller as often as it likes.
	e.processes = append(slices.DeleteFunc(e.processes, (*process).exited), p)
	return p, nil
}

// await polls a condition until it is true, the time is over or a process has ended unexpectedly.
func (e *Environment) await(ctx context.Context, what string, timeout time.Duration, done wait.ConditionWithContextFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, done)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return fmt.Errorf("%s was not ready within %s; its last lines were:\n%s", what, timeout, e.Log(what, tailLines))
	default:
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
}

// baseEnv is what every process gets of our own environment.
func baseEnv() []string {
	env := make([]string, 0, 4)
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
