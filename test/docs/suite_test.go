/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package docs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

const root = "../.."

func TestDocs(t *testing.T) {
	log.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	RunSpecs(t, "Docs")
}

// sources are the pages and the files beside them that a reader copies commands from.
func sources() []string {
	paths := []string{filepath.Join(root, "README.md"), filepath.Join(root, "README.vi.md"), filepath.Join(root, "CONTRIBUTING.md")}
	paths = lo.Filter(paths, func(path string, _ int) bool { _, err := os.Stat(path); return err == nil })
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".vitepress" {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return paths
}

// placeholder is what a reader replaces by a value of theirs.
var placeholder = regexp.MustCompile(`<[a-z][a-z A-Z-]*>`)

var _ = Describe("The blocks of the pages", func() {
	It("should be valid shell, whether they are run here or not", func() {
		parsed := 0
		for _, path := range sources() {
			p, err := readPage(path)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range p.blocks {
				if b.language != "sh" && b.language != "bash" {
					continue
				}
				command := exec.Command("bash", "-n")
				command.Stdin = strings.NewReader(placeholder.ReplaceAllString(b.text, "placeholder"))
				said, err := command.CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s:%d: %s", path, b.line, said)
				parsed++
			}
		}
		Expect(parsed).To(BeNumerically(">", 50))
	})
	It("should be run on a cluster that the page names", func() {
		for _, path := range sources() {
			p, err := readPage(path)
			Expect(err).NotTo(HaveOccurred())
			runs := slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "sh" && b.marked(run) })
			Expect(runs).To(Equal(p.fixture != ""), "%s: the front matter needs \"cluster: new\" or \"cluster: ready\" exactly if blocks are marked run", path)
			Expect(p.fixture).To(BeElementOf("", "new", "ready"), path)
		}
	})
	It("should be the same commands in Vietnamese", func() {
		commands := func(name string) []string {
			p, err := readPage(filepath.Join(root, "docs", name))
			Expect(err).NotTo(HaveOccurred())
			return lo.FilterMap(p.blocks, func(b block, _ int) (string, bool) { return b.text, b.language == "sh" })
		}
		Expect(commands("get-started/bke.md")).To(ContainElements(lo.ToAnySlice(commands("vi/get-started.md"))...))
	})
	It("should be compared without what differs from run to run", func() {
		Expect(normalized("NAME          AGE\ndefault-x7k2p 37s\n")).To(Equal(normalized("NAME            AGE\ndefault-abcde   4m1s\n")))
		Expect(normalized("default-x7k2p-pg686cy4sbfb56br45 Ready")).To(Equal(normalized("default-qqqqq-0yptx5s0gaqc65fzgm   Ready")))
		Expect(normalized("default True")).NotTo(Equal(normalized("default False")))
	})
	It("should be rewritten where they are", func() {
		path := filepath.Join(GinkgoT().TempDir(), "page.md")
		text := "---\ncluster: ready\n---\n1. Do:\n\n   ```sh run\n   echo one\n   ```\n\n   ```text output\n   old\n   ```\n\n```sh\ntrue\n```\n"
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		p, err := readPage(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.fixture).To(Equal("ready"))
		Expect(p.blocks[p.expected(0)].text).To(Equal("old\n"))
		p.show(1, "one\ntwo\n")
		Expect(p.write()).To(Succeed())
		p, err = readPage(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.blocks).To(HaveLen(3))
		Expect(p.blocks[1].text).To(Equal("one\ntwo\n"))
		Expect(p.lines[p.blocks[2].line-1]).To(Equal("true"))
	})
})

// The rest starts processes and takes minutes: `make docs-test`. One control plane per page, so that no page depends on another.
var _ = Describe("The commands of", Ordered, ContinueOnFailure, func() {
	for _, path := range sources() {
		name, _ := filepath.Rel(root, path)
		p, err := readPage(path)
		if err != nil || p.fixture == "" {
			continue
		}
		It(name+" should print what the page shows", func(ctx SpecContext) {
			if os.Getenv("E2E") == "" {
				Skip("needs the whole control plane: run `make docs-test`")
			}
			s := newSession(ctx, p.fixture)
			// All outputs of a page are written when one has changed, so that they are of one run.
			printed, changed := map[int]string{}, false
			for i := range p.blocks {
				b := p.blocks[i]
				if b.language != "sh" || !b.marked(run) {
					continue
				}
				said, err := s.run(ctx, b.text)
				Expect(err).NotTo(HaveOccurred(), "%s:%d:\n%s\nprinted:\n%s\n%s", name, b.line, b.text, said, s.diagnosis())
				shown := p.expected(i)
				if shown < 0 {
					continue
				}
				printed[shown] = said
				if slices.Equal(normalized(p.blocks[shown].text), normalized(said)) {
					continue
				}
				if os.Getenv("UPDATE") == "true" {
					changed = true
					continue
				}
				Expect(normalized(said)).To(Equal(normalized(p.blocks[shown].text)),
					"%s:%d:\n%s\nprinted:\n%s\nUPDATE=true make docs-test writes it into the page", name, p.blocks[shown].line, b.text, said)
			}
			if changed {
				for shown, said := range printed {
					p.show(shown, said)
				}
				Expect(p.write()).To(Succeed())
			}
		}, SpecTimeout(8*time.Minute))
	}
	It("manifests should be accepted by the API server", func(ctx SpecContext) {
		if os.Getenv("E2E") == "" {
			Skip("needs the whole control plane: run `make docs-test`")
		}
		s := newSession(ctx, "ready")
		applied := 0
		for _, path := range sources() {
			p, err := readPage(path)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range p.blocks {
				if b.language != "yaml" || b.marked(elsewhere) || !strings.Contains(b.text, "apiVersion:") || strings.Contains(path, "/reference/") {
					continue
				}
				manifest := filepath.Join(s.dir, "manifest.yaml")
				Expect(os.WriteFile(manifest, []byte(placeholder.ReplaceAllString(b.text, "placeholder")), 0o600)).To(Succeed())
				said, err := s.run(ctx, "kubectl apply --dry-run=server --validate=strict -f "+manifest)
				Expect(err).NotTo(HaveOccurred(), "%s:%d: %s", path, b.line, said)
				applied++
			}
		}
		Expect(applied).To(BeNumerically(">", 5))
	}, SpecTimeout(5*time.Minute))
})

// session runs commands one after the other as a reader's shell would: variables and the folder stay.
type session struct {
	env    *environment.Environment
	dir    string
	values map[string]string
}

// newSession starts what a page finds. "new": a BKE cluster with two nodes of a static pool and nothing of Karpenter; the chart
// that the page installs is run as its pods say. "ready": the controller, and the NodeClass and NodePool "default" of the samples.
func newSession(ctx context.Context, fixture string) *session {
	GinkgoHelper()
	isNew := fixture == "new"
	env, err := environment.Start(ctx, environment.Options{
		Latency: time.Second, Boot: time.Second, Seed: 1, NoCRDs: isNew, NoController: isNew,
		Progress: func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	cloud := env.Sandbox().Env()
	s := &session{env: env, dir: GinkgoT().TempDir(), values: map[string]string{
		"<cluster uid>": cloud["BKE_CLUSTER_ID"], "<join token>": cloud["BKE_CLUSTER_TOKEN"],
		"<credential id>": cloud["BIZFLY_CLOUD_APP_CRED_ID"], "<credential secret>": cloud["BIZFLY_CLOUD_APP_CRED_SECRET"],
		"<your registry>": "registry.example.com/team",
	}}
	// What a real cluster has and the sandbox's addresses, which a reader does not need, go to Helm beside the page's own values.
	values := fmt.Sprintf("cloud: {endpoint: %q, allowHTTP: true}\nbke: {joinEndpoint: %q, logEndpoint: %q}\n",
		cloud["BIZFLY_CLOUD_API_URL"], cloud["BKE_JOIN_ENDPOINT"], cloud["BKE_LOG_ENDPOINT"])
	Expect(os.WriteFile(filepath.Join(s.dir, "sandbox.yaml"), []byte(values), 0o600)).To(Succeed())
	helm := lo.CoalesceOrEmpty(os.Getenv("HELM"), filepath.Join(env.Root(), ".cache/tools/helm"))
	wrapper := fmt.Sprintf("#!/bin/bash\ncase \"$*\" in\n*charts/karpenter-provider-bizflycloud\\ *) exec %s \"$@\" -f %s/sandbox.yaml;;\n*) exec %s "+
		"\"$@\";;\nesac\n",
		helm, s.dir, helm)
	Expect(os.WriteFile(filepath.Join(s.dir, "helm"), []byte(wrapper), 0o700)).To(Succeed())
	if isNew {
		Expect(env.CreateStaticPool(ctx)).To(Succeed())
		kubelet, err := env.StartKubelet("karpenter", map[string]string{"app.kubernetes.io/instance": "karpenter"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(kubelet.Stop()).To(Succeed()) })
		return s
	}
	said, err := s.run(ctx, "kubectl apply -f config/samples/nodeclass-default.yaml -f config/samples/nodepool-default.yaml\n"+
		"kubectl wait --for=condition=Ready bizflynodeclass/default nodepool/default --timeout=1m")
	Expect(err).NotTo(HaveOccurred(), said)
	return s
}

// run runs a block and returns what it prints. Values of this environment stand where the page has a placeholder, and the other
// way round in what is printed.
func (s *session) run(ctx context.Context, text string) (string, error) {
	for name, value := range s.values {
		text = strings.ReplaceAll(text, name, value)
	}
	state := filepath.Join(s.dir, "state")
	script := fmt.Sprintf("[ ! -f %[1]s ] || . %[1]s\nset -euo pipefail\n%[2]s\n{ export -p; printf 'cd %%q\\n' \"$PWD\"; } > %[1]s\n", state, text)
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = s.env.Root()
	command.Env = []string{
		"PATH=" + s.dir + ":" + s.env.AssetDir() + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "KUBECONFIG=" + s.env.Kubeconfig(),
		"SANDBOX_URL=" + s.env.Sandbox().URL(), "LC_ALL=C", "TZ=UTC",
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

// diagnosis is what a maintainer looks at first.
func (s *session) diagnosis() string {
	said, _ := s.run(context.Background(), "kubectl get pods,nodeclaims,nodepools,bizflynodeclasses,providerconfigs -A 2>&1; kubectl get events -A | tail -20")
	logs, _ := filepath.Glob(filepath.Join(s.env.Dir(), "logs", "pod-*.log"))
	for _, path := range append(logs, filepath.Join(s.env.Dir(), "logs", "controller.log")) {
		said += "\n" + s.env.Log(strings.TrimSuffix(filepath.Base(path), ".log"), 10)
	}
	return said
}
