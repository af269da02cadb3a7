// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func TestCloud(t *testing.T) { suite.Run(t, "Cloud") }

const latency = 30 * time.Second

// box is a sandbox with a fake clock, and the ways to talk to it.
type box struct {
	*cloud.Sandbox
	clock  *clocktesting.FakeClock
	client *gobizfly.Client
	token  string
}

// newBox starts a sandbox whose tasks take latency, and logs in as the real client does.
func newBox(opts cloud.Options) *box {
	GinkgoHelper()
	fake := clocktesting.NewFakeClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	opts.Clock = fake
	if opts.Latency == 0 {
		opts.Latency = latency
	}
	b := &box{Sandbox: cloud.Start(opts), clock: fake}
	DeferCleanup(b.Close)
	b.client = b.login(b.Credentials().ProjectID, b.Credentials().Region)
	return b
}

// login makes a real client. It has keep-alives of its own, so that closed connections are never replayed by luck.
func (b *box) login(project, region string) *gobizfly.Client {
	GinkgoHelper()
	httpClient := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	client, err := gobizfly.NewClient(gobizfly.WithAPIURL(b.APIURL), gobizfly.WithRegionName(region), gobizfly.WithHTTPClient(httpClient))
	Expect(err).ToNot(HaveOccurred())
	token, err := client.Token.Init(context.Background(), &gobizfly.TokenCreateRequest{
		AuthMethod: "password", Username: b.Credentials().Email, Password: b.Credentials().Password, ProjectID: project,
	})
	Expect(err).ToNot(HaveOccurred())
	client.SetKeystoneToken(token)
	b.token = token.KeystoneToken
	return client
}

// answer is a raw answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the answer into plain maps and slices.
func (a answer) json() any {
	GinkgoHelper()
	var value any
	Expect(json.Unmarshal(a.body, &value)).To(Succeed(), "%s", a.body)
	return value
}

func (a answer) object() map[string]any {
	GinkgoHelper()
	value, isObject := a.json().(map[string]any)
	Expect(isObject).To(BeTrue(), "%s", a.body)
	return value
}

// send sends a raw request with a token; a body is JSON text or something to encode.
func (b *box) send(method, path string, body any) (answer, error) {
	GinkgoHelper()
	var payload io.Reader
	switch typed := body.(type) {
	case nil:
	case string:
		payload = bytes.NewReader([]byte(typed))
	default:
		raw, err := json.Marshal(body)
		Expect(err).ToNot(HaveOccurred())
		payload = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, b.URL+path, payload)
	Expect(err).ToNot(HaveOccurred())
	request.Header.Set("X-Auth-Token", b.token)
	request.Header.Set("X-Project-ID", b.Credentials().ProjectID)
	client := &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	Expect(err).ToNot(HaveOccurred())
	return answer{response.StatusCode, response.Header, raw}, nil
}

// call is send where an answer must come.
func (b *box) call(method, path string, body any) answer {
	GinkgoHelper()
	a, err := b.send(method, path, body)
	Expect(err).ToNot(HaveOccurred())
	return a
}

func (b *box) get(path string) answer {
	GinkgoHelper()
	return b.call(http.MethodGet, path, nil)
}

// request returns a valid create request.
func (b *box) request(name string) *gobizfly.ServerCreateRequest {
	return &gobizfly.ServerCreateRequest{
		Name: name, FlavorName: "p2.2c_4g", Type: "premium", AvailabilityZone: "HN1", BillingPlan: "on_demand", IsCreatedWan: ptr.To(false),
		RootDisk: &gobizfly.ServerDisk{Size: 40, VolumeType: ptr.To("PREMIUM-SSD1")},
		OS:       &gobizfly.ServerOS{ID: b.workerImage("v1.35.4"), Type: "image"}, NetworkPlan: "free_datatransfer",
		VPCNetworkIDs: []string{b.BKE().NetworkID}, UserData: "#!/bin/bash\ntrue\n", Metadata: map[string]string{"owner": "me"},
	}
}

// raw returns a create request as plain JSON, with changes; nil removes a field.
func (b *box) raw(changes map[string]any) []map[string]any {
	GinkgoHelper()
	encoded, err := json.Marshal(b.request("raw"))
	Expect(err).ToNot(HaveOccurred())
	var request map[string]any
	Expect(json.Unmarshal(encoded, &request)).To(Succeed())
	for key, value := range changes {
		if value == nil {
			delete(request, key)
		} else {
			request[key] = value
		}
	}
	return []map[string]any{request}
}

func (b *box) workerImage(version string) string {
	for _, known := range b.Options().Catalog.Versions {
		if known.KubernetesVersion == version {
			return known.WorkerImageID
		}
	}
	return ""
}

// create launches a server and returns the task's id.
func (b *box) create(request *gobizfly.ServerCreateRequest) string {
	GinkgoHelper()
	created, err := b.client.CloudServer.Create(context.Background(), request)
	Expect(err).ToNot(HaveOccurred())
	Expect(created.Task).To(HaveLen(1))
	return created.Task[0]
}

// launch creates a server, lets it be built and returns it.
func (b *box) launch(request *gobizfly.ServerCreateRequest) *gobizfly.Server {
	GinkgoHelper()
	task := b.create(request)
	b.Advance(b.Options().Latency)
	done, err := b.client.CloudServer.GetTask(context.Background(), task)
	Expect(err).ToNot(HaveOccurred())
	Expect(done.Ready).To(BeTrue())
	Expect(done.Result.Success).To(BeTrue())
	server, err := b.client.CloudServer.Get(context.Background(), done.Result.ID)
	Expect(err).ToNot(HaveOccurred())
	return server
}

const (
	servers = "/iaas-cloud/api/servers"
	tasks   = "/iaas-cloud/api/tasks/"
	volumes = "/iaas-cloud/api/volumes"
)
