// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// Sandbox is BizFly Cloud in a box, with its ground truth.
type Sandbox struct {
	url string
	env map[string]string
}

// startSandbox starts the sandbox and learns from what it prints where it listens and what credentials it accepts.
func (e *Environment) startSandbox(ctx context.Context) error {
	path, err := e.binary(ctx, "SANDBOX", "test/sandbox")
	if err != nil {
		return err
	}
	config := filepath.Join(e.dir, "sandbox.kubeconfig")
	if err := e.pki.kubeconfig(config, e.server, "sandbox", "system:masters"); err != nil {
		return err
	}
	version, err := e.KubernetesVersion()
	if err != nil {
		return err
	}
	envFile, log := filepath.Join(e.dir, "sandbox.env"), e.logPath("sandbox")
	args := append([]string{
		"--listen=" + e.listen(), "--kubeconfig=" + config, "--print-env=" + envFile,
		"--latency=" + e.options.Latency.String(), "--boot=" + e.options.Boot.String(),
		"--seed=" + strconv.FormatInt(e.options.Seed, 10),
		// No kubelet may be newer than the API server.
		"--kubernetes-minor=" + strconv.Itoa(min(cloud.DefaultMinor, int(version.Minor()))),
	}, append(e.machinesArgs(), e.options.SandboxArgs...)...)
	if _, err := e.launch(command{name: "sandbox", path: path, args: args, env: baseEnv(), log: log}, e.fail); err != nil {
		return err
	}
	return e.await(ctx, "sandbox", startPatience, func(ctx context.Context) (bool, error) {
		// It reports that it listens once the file is complete.
		if said, err := os.ReadFile(log); err != nil || !bytes.Contains(said, []byte("listening on ")) { //nolint:gosec // a log of ours
			return false, nil //nolint:nilerr // it may not have logged anything yet
		}
		env, err := readEnv(envFile)
		if err != nil {
			return false, err
		}
		url := origin(env["BIZFLY_CLOUD_API_URL"])
		if !answers(ctx, http.DefaultClient, url+"/_sandbox/state") {
			return false, nil
		}
		e.sandbox = &Sandbox{url: url, env: env}
		return true, nil
	})
}

// readEnv reads a file of lines NAME=value.
func readEnv(path string) (map[string]string, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a file of ours
	if err != nil {
		return nil, fmt.Errorf("reading the environment that the sandbox wrote: %w", err)
	}
	env := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			env[name] = strings.Trim(value, "'")
		}
	}
	return env, nil
}

// origin cuts a URL after its host.
func origin(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// URL is where the sandbox listens, without a path.
func (s *Sandbox) URL() string { return s.url }

// Env is what a controller needs to use the sandbox.
func (s *Sandbox) Env() map[string]string { return maps.Clone(s.env) }

// State is the ground truth: what exists, whether or not the API shows it.
func (s *Sandbox) State(ctx context.Context) (cloud.State, error) {
	var state cloud.State
	return state, s.Call(ctx, http.MethodGet, "state", nil, &state)
}

// Requests are the API calls that the sandbox has received.
func (s *Sandbox) Requests(ctx context.Context) ([]cloud.Request, error) {
	var requests []cloud.Request
	return requests, s.Call(ctx, http.MethodGet, "requests", nil, &requests)
}

// Call calls one of the sandbox's own endpoints, below /_sandbox/. The body and the reply are JSON; either may be nil.
func (s *Sandbox) Call(ctx context.Context, method, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a request to the sandbox: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url+"/_sandbox/"+path, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("making a request to the sandbox: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the sandbox: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("reading the sandbox's reply: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the sandbox answered %s %s with %s: %.300s", method, path, response.Status, content)
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(content, reply); err != nil {
		return fmt.Errorf("decoding the sandbox's reply to %s %s: %w", method, path, err)
	}
	return nil
}
