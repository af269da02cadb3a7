// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// realAPI is where pages say that the API is.
const realAPI = "https://manage.bizflycloud.vn/api"

// session runs commands one after the other as a reader's shell would: variables and the folder stay.
type session struct {
	env    *environment.Environment
	dir    string
	values map[string]string
	// api is where the sandbox is, instead of realAPI.
	api string
	// after checks what the page's commands leave behind; it may be nil.
	after func(context.Context)
}

// fixture prepares what the commands of a page find.
type fixture struct {
	// installed is whether the controller runs as a process from the start, with the NodeClass and the NodePool "default". Otherwise
	// there is a BKE cluster with two nodes of a static pool, and the charts that a page installs run as their pods say.
	installed bool
	// machines is whether the page is about nodes that only real machines are: without them it is skipped.
	machines bool
	prepare  func(context.Context, *session)
}

// machines is whether servers are real machines, on which charts run from their images: `make e2e SUITE=nodes-docs`. Otherwise KWOK imitates the
// nodes, and a process stands in for the pods of the controller.
var machines = os.Getenv("NODES") != ""

// fixtures are the values of "cluster" in the front matter of a page.
var fixtures = map[string]fixture{
	"new":            {},
	"kubeadm":        {machines: true},
	"ready":          {installed: true},
	"helm":           {prepare: installWithHelm},
	"worker-pools":   {prepare: prepareWorkerPools},
	"older-provider": {prepare: prepareOlderProvider},
}

func newSession(ctx context.Context, name string) *session {
	GinkgoHelper()
	f := fixtures[name]
	if f.machines && !machines {
		Skip("needs real machines: run `make e2e SUITE=nodes-docs`")
	}
	env, err := environment.Start(ctx, environment.Options{
		Latency: time.Second, Boot: time.Second, Seed: 1, NoCRDs: !f.installed, NoController: !f.installed, Machines: machines,
		Progress: func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	s := &session{env: env, dir: GinkgoT().TempDir()}
	s.prepareHelm()
	if f.installed {
		s.must(ctx, `kubectl create namespace karpenter
kubectl apply -f config/samples/nodeclass-default.yaml -f config/samples/nodepool-default.yaml
kubectl wait --for=condition=Ready bizflynodeclass/default nodepool/default --timeout=1m`)
	} else {
		s.createPool(ctx, "pool-1", 1, 3, map[string]string{"bke.bizflycloud.vn/node-id": "pool-1"})
		s.runCharts(ctx)
	}
	if f.prepare != nil {
		f.prepare(ctx, s)
	}
	return s
}

// installWithHelm leaves what steps 4 and 5 of the tutorial leave.
func installWithHelm(ctx context.Context, s *session) {
	GinkgoHelper()
	for _, section := range []string{"get-started/bke.md#1-find-the-values", "get-started/bke.md#4-install", "get-started/bke.md#5-define-what-may-be-launched"} {
		s.runSection(ctx, section)
	}
}

// prepareHelm wraps Helm: what a real cluster has and the sandbox's addresses, which a reader does not need, go to Helm beside the
// page's own values.
func (s *session) prepareHelm() {
	GinkgoHelper()
	cloud := s.env.Sandbox().Env()
	s.values = map[string]string{
		"<cluster uid>": cloud["BKE_CLUSTER_ID"], "<join token>": cloud["BKE_CLUSTER_TOKEN"],
		"<credential id>": cloud["BIZFLY_CLOUD_APP_CRED_ID"], "<credential secret>": cloud["BIZFLY_CLOUD_APP_CRED_SECRET"],
		"<your registry>": lo.Ternary(machines, environment.Registry(), "registry.example.com/team"),
		"<new tag>":       "dev-2",
	}
	s.api = cloud["BIZFLY_CLOUD_API_URL"]
	values := fmt.Sprintf("cloud: {endpoint: %q, allowHTTP: true}\nbke: {joinEndpoint: %q, logEndpoint: %q}\nsettings: {batchIdleDuration: %q}\n",
		cloud["BIZFLY_CLOUD_API_URL"], cloud["BKE_JOIN_ENDPOINT"], cloud["BKE_LOG_ENDPOINT"], environment.BatchIdle)
	Expect(os.WriteFile(filepath.Join(s.dir, "sandbox.yaml"), []byte(values), 0o600)).To(Succeed())
	helm := lo.CoalesceOrEmpty(os.Getenv("HELM"), filepath.Join(s.env.Root(), ".cache/tools/helm"))
	wrapper := fmt.Sprintf("#!/bin/bash\ncase \"$*\" in\n*charts/karpenter-provider-bizflycloud\\ *) exec %s \"$@\" -f %s/sandbox.yaml;;\n*) exec %s "+
		"\"$@\";;\nesac\n",
		helm, s.dir, helm)
	Expect(os.WriteFile(filepath.Join(s.dir, "helm"), []byte(wrapper), 0o700)).To(Succeed())
}

// lookAgain runs the last looks of a block until what it printed with them is what the page shows, for a minute: controllers write some of it
// later.
func (s *session) lookAgain(ctx context.Context, looks, begun, shown string) (said string, err error) {
	looking, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	_ = wait.PollUntilContextCancel(looking, time.Second, true, func(context.Context) (bool, error) {
		said, err = s.run(ctx, looks)
		said = begun + said
		return err != nil || slices.Equal(normalized(shown), normalized(said)), nil //nolint:nilerr // it is returned below
	})
	return said, err
}

// run runs a block and returns what it prints. Values of this environment stand where the page has a placeholder, and the other
// way round in what is printed.
func (s *session) run(ctx context.Context, text string) (string, error) {
	for name, value := range s.values {
		text = strings.ReplaceAll(text, name, value)
	}
	text = strings.ReplaceAll(text, realAPI, s.api)
	state := filepath.Join(s.dir, "state")
	script := fmt.Sprintf("[ ! -f %[1]s ] || . %[1]s\nset -euo pipefail\n%[2]s\n{ export -p; printf 'cd %%q\\n' \"$PWD\"; } > %[1]s\n", state, text)
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = s.env.Root()
	command.Env = []string{
		"PATH=" + s.dir + ":" + filepath.Join(s.env.Root(), "bin") + ":" + s.env.AssetDir() + ":" + os.Getenv("PATH"),
		"HOME=" + s.dir, "KUBECONFIG=" + s.env.Kubeconfig(), "SANDBOX_URL=" + s.env.Sandbox().URL(), "LC_ALL=C", "TZ=UTC",
		// Where the plugin finds the cloud with the reader's own credentials.
		"BIZFLY_CLOUD_API_URL=" + s.api, "BIZFLY_CLOUD_ALLOW_HTTP=true",
	}
	said, err := command.CombinedOutput()
	printed := string(said)
	for name, value := range s.values {
		if value != "" {
			printed = strings.ReplaceAll(printed, value, name)
		}
	}
	return printed, err
}

// must runs what a fixture needs.
func (s *session) must(ctx context.Context, text string) {
	GinkgoHelper()
	said, err := s.run(ctx, text)
	Expect(err).NotTo(HaveOccurred(), "%s\nprinted:\n%s", text, said)
}

// runBlock runs a block of a page: commands, or a manifest that is applied.
func (s *session) runBlock(ctx context.Context, b block) (string, error) {
	if b.language != "yaml" {
		return s.run(ctx, b.text)
	}
	return s.run(ctx, "kubectl apply -f - <<'MANIFEST'\n"+b.text+"MANIFEST")
}

// runSection runs the commands of another page's section, without a look at their outputs, which that page shows.
func (s *session) runSection(ctx context.Context, reference string) {
	GinkgoHelper()
	name, anchor, _ := strings.Cut(reference, "#")
	p, err := readPage(filepath.Join(root, "docs", name))
	Expect(err).NotTo(HaveOccurred())
	blocks := p.section(anchor)
	Expect(blocks).NotTo(BeEmpty(), "no commands in %s", reference)
	for _, b := range blocks {
		said, err := s.runBlock(ctx, b)
		Expect(err).NotTo(HaveOccurred(), "%s:%d:\n%s\nprinted:\n%s\n%s", name, b.line, b.text, said, s.diagnosis())
	}
}

// diagnosis is what a maintainer looks at first.
func (s *session) diagnosis() string {
	said, _ := s.run(context.Background(), "kubectl get nodes,pods,nodeclaims,nodepools,bizflynodeclasses,providerconfigs -A 2>&1; "+
		"kubectl get events -A | tail -20")
	logs, _ := filepath.Glob(filepath.Join(s.env.Dir(), "logs", "pod-*.log"))
	for _, path := range append(logs, filepath.Join(s.env.Dir(), "logs", "controller.log")) {
		said += "\n" + s.env.Log(strings.TrimSuffix(filepath.Base(path), ".log"), 10)
	}
	return said
}
