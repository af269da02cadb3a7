// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realcloud_test is the first contact with a real BizFly Cloud: it launches one server, lets it join, deletes it, and
// writes down what the cloud answered. It spends money, so it runs only when credentials and a budget are in its
// environment; `make realcloud SANDBOX=1` runs the same against the sandbox. See docs/contribute/first-contact.md.
package realcloud_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// settings are those of the environment.
type settings struct {
	// sandbox is true where the suite brings its own cloud.
	sandbox bool
	client  bizfly.Config
	// bke is how servers join; what is empty is learned from BKE's own pools, and without a cluster servers only run.
	bke        bke.Values
	kubeconfig string
	// budget is the most that the run may cost in VND.
	budget float64
	// flavor and zone restrict what is launched; empty is the cheapest.
	flavor, zone string
	// answers is the file that is written, or the folder where a path ends in a slash.
	answers string
	// leftoversOf is the id of an earlier run of which only the remains are removed.
	leftoversOf string
	// poll is the time between two looks, patience how long a launch or a removal may take.
	poll, patience time.Duration
	// quiet is how long nothing must be listed where a server may come of a request whose task does not tell.
	quiet time.Duration
}

// sandboxed reports whether the suite brings its own cloud.
func sandboxed() bool { return os.Getenv("E2E_CLOUD_SANDBOX") != "" }

// missing names what the environment lacks for a run against a real cloud.
func missing() []string {
	var names []string
	for _, name := range []string{"E2E_CLOUD_BUDGET_VND", "BIZFLY_CLOUD_REGION", "BIZFLY_CLOUD_PROJECT_ID"} {
		if os.Getenv(name) == "" {
			names = append(names, name)
		}
	}
	password := os.Getenv("BIZFLY_CLOUD_EMAIL") != "" && os.Getenv("BIZFLY_CLOUD_PASSWORD") != ""
	credential := os.Getenv("BIZFLY_CLOUD_APP_CRED_ID") != "" && os.Getenv("BIZFLY_CLOUD_APP_CRED_SECRET") != ""
	if !password && !credential {
		names = append(names, "BIZFLY_CLOUD_APP_CRED_ID and BIZFLY_CLOUD_APP_CRED_SECRET (or BIZFLY_CLOUD_EMAIL and BIZFLY_CLOUD_PASSWORD)")
	}
	return names
}

func TestRealCloud(t *testing.T) {
	if names := missing(); !sandboxed() && len(names) > 0 {
		// The line in which every check of this repository says that it cannot run on a machine.
		fmt.Printf("--- e2e-cloud: skipped: it launches a server, and these are not set: %s\n", strings.Join(names, ", "))
		if os.Getenv("GITHUB_ACTIONS") != "" {
			t.FailNow() // the workflow was started for it: a run without specs must not pass there
		}
		t.SkipNow()
	}
	suite.Run(t, "First contact", Label("e2e-cloud"))
}

// read reads the settings.
func read(env map[string]string) (settings, error) {
	s := settings{
		sandbox: sandboxed(),
		client: bizfly.Config{
			APIURL: env["BIZFLY_CLOUD_API_URL"], Region: env["BIZFLY_CLOUD_REGION"], ProjectID: env["BIZFLY_CLOUD_PROJECT_ID"],
			Email: env["BIZFLY_CLOUD_EMAIL"], Password: env["BIZFLY_CLOUD_PASSWORD"],
			AppCredID: env["BIZFLY_CLOUD_APP_CRED_ID"], AppCredSecret: env["BIZFLY_CLOUD_APP_CRED_SECRET"],
			AuthMethod: bizfly.AuthMethodAppCredential, AllowHTTP: env["BIZFLY_CLOUD_ALLOW_HTTP"] == "true", Version: "e2e-cloud",
		},
		bke: bke.Values{ClusterID: env["BKE_CLUSTER_ID"], Token: env["BKE_CLUSTER_TOKEN"],
			JoinEndpoint: env["BKE_JOIN_ENDPOINT"], LogEndpoint: env["BKE_LOG_ENDPOINT"]},
		kubeconfig: env["KUBECONFIG"], flavor: env["E2E_CLOUD_FLAVOR"], zone: env["E2E_CLOUD_ZONE"],
		answers: env["E2E_CLOUD_ANSWERS"],
		poll:    3 * time.Second, patience: 15 * time.Minute, quiet: 5 * time.Minute,
	}
	if s.client.AppCredSecret == "" {
		s.client.AuthMethod = bizfly.AuthMethodPassword
	}
	if s.sandbox {
		s.poll, s.patience, s.quiet = 200*time.Millisecond, 2*time.Minute, 4*time.Second
	}
	if s.answers == "" {
		s.answers = os.TempDir() + "/"
	}
	var err error
	if s.budget, err = strconv.ParseFloat(env["E2E_CLOUD_BUDGET_VND"], 64); err != nil || s.budget <= 0 {
		return s, fmt.Errorf("E2E_CLOUD_BUDGET_VND is %q: set the most that the run may cost, in VND, for example 20000", env["E2E_CLOUD_BUDGET_VND"])
	}
	s.leftoversOf, err = sweepOf(env["E2E_CLOUD_SWEEP"], s.client.Region)
	return s, err
}

// runKey is the region and the id of a run.
var runKey = regexp.MustCompile(`(?i)^(.+)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// sweepOf returns the id of a run that is written as <region>-<id>: lists of another region show nothing of it, as if nothing were left.
func sweepOf(key, configured string) (id string, err error) {
	if key == "" {
		return "", nil
	}
	match := runKey.FindStringSubmatch(key)
	if match == nil {
		return "", fmt.Errorf("E2E_CLOUD_SWEEP is %q: take it whole from the log, or from the name of the file in .cache/reports", key)
	}
	was, err := bizfly.ParseRegion(strings.TrimSuffix(match[1], "-"))
	if is, _ := bizfly.ParseRegion(configured); err != nil || is != was {
		return "", fmt.Errorf("E2E_CLOUD_SWEEP is %q, a run in another region than BIZFLY_CLOUD_REGION=%s: set that to the region of the run", key, configured)
	}
	return match[2], nil
}

// secrets are what must be nowhere in the answers.
func (s settings) secrets() []string {
	return []string{s.client.Password, s.client.AppCredSecret, s.client.AppCredID, s.client.Email, s.client.ProjectID,
		s.bke.Token, s.bke.ClusterID}
}

// box is the sandbox's control plane and cloud; nil against a real one.
var box *environment.Environment

var contact *run

var _ = BeforeSuite(func(ctx SpecContext) {
	if os.Getenv(modesVariable) != "" {
		return // these specs bring a cloud each
	}
	env := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	if sandboxed() {
		maps.Copy(env, startSandbox(ctx))
	}
	s, err := read(env)
	Expect(err).NotTo(HaveOccurred())
	SetDefaultEventuallyTimeout(s.patience)
	SetDefaultEventuallyPollingInterval(s.poll)
	contact, err = newRun(s)
	Expect(err).NotTo(HaveOccurred())
	GinkgoWriter.Printf("this is run %s; should it be killed, `make realcloud E2E_CLOUD_SWEEP=%s` removes what it made\n", contact.key(), contact.key())
	if !contact.sandbox {
		Expect(os.MkdirAll(filepath.Dir(contact.answers), 0o750)).To(Succeed())
		Expect(os.WriteFile(contact.marker(), nil, 0o600)).To(Succeed())
	}
}, NodeTimeout(2*time.Minute))

// addPoolNode adds a worker pool of one node, as BKE's customers have it.
func addPoolNode(ctx context.Context, env map[string]string) {
	GinkgoHelper()
	server := cloud.Server{}
	Expect(box.Sandbox().Call(ctx, http.MethodPost, "servers", cloud.ServerSpec{Name: "pool-1-0", Metadata: map[string]string{
		"bke_cluster_id": env["BKE_CLUSTER_ID"], "bke_cluster_token": env["BKE_CLUSTER_TOKEN"], "bke_join_endpoint": env["BKE_JOIN_ENDPOINT"],
	}}, &server)).To(Succeed())
	pool := cloud.PoolSpec{Name: "pool-1", Servers: []string{server.ID}, MinSize: 1, MaxSize: 3}
	Expect(box.Sandbox().Call(ctx, http.MethodPost, "pools", pool, nil)).To(Succeed())
	Expect(box.Client().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-1-0", Labels: map[string]string{"bke.bizflycloud.vn/node-id": "pool-1-0"}},
		Spec:       corev1.NodeSpec{ProviderID: providerid.New(server.ID)},
	})).To(Succeed())
}

// startSandbox starts a control plane and a sandbox as processes, and returns what the controller would be given.
func startSandbox(ctx context.Context) map[string]string {
	GinkgoHelper()
	var err error
	box, err = environment.Start(ctx, environment.Options{
		NoController: true, Latency: 2 * time.Second, Boot: time.Second, Seed: GinkgoRandomSeed(),
		SandboxArgs: strings.Fields(os.Getenv("SANDBOX_ARGS")),
		Progress:    func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(box.Stop()).To(Succeed()) })
	env := box.Sandbox().Env()
	env["KUBECONFIG"] = box.Kubeconfig()
	addPoolNode(ctx, env)
	env["E2E_CLOUD_BUDGET_VND"] = "20000"
	// Whatever is set for a real one must not be mixed with it. What servers join with is learned from the pool, as it is by default.
	for _, name := range []string{
		"E2E_CLOUD_FLAVOR", "E2E_CLOUD_ZONE", "E2E_CLOUD_SWEEP", "BKE_CLUSTER_ID", "BKE_CLUSTER_TOKEN", "BKE_JOIN_ENDPOINT", "BKE_LOG_ENDPOINT",
	} {
		env[name] = ""
	}
	return env
}
