// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients_test holds the sandbox to what clients that are not ours send about servers, disks and pools: the requests of the
// Terraform provider, of the command line, of the cloud controller manager, of the CSI driver, of the cluster-autoscaler and of the older
// Karpenter provider, each with the answer that it needs and the state that it leaves. docs/contribute/sandbox.md lists endpoints.
package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func TestClients(t *testing.T) { suite.Run(t, "Clients") }

const (
	latency = 10 * time.Second
	compute = "/iaas-cloud/api"
	engine  = "/api/kubernetes-engine"
)

// object is a JSON object.
type object = map[string]any

// session is a client that has logged in to a sandbox of its own.
type session struct {
	*cloud.Sandbox
	token string
}

// login logs in as clients do: for a token, then for the catalog.
func login() *session {
	GinkgoHelper()
	s := &session{Sandbox: cloud.Start(cloud.Options{
		// Each client has a form of its own, and they are all clients of one cloud.
		Modes:   []string{"any-form"},
		Latency: latency, Clock: clocktesting.NewFakeClock(time.Date(2026, 4, 1, 1, 0, 0, 0, time.UTC)),
	})}
	DeferCleanup(s.Close)
	c := s.Credentials()
	answer := s.expect(http.StatusOK, http.MethodPost, "/api/token",
		object{"auth_method": "password", "username": c.Email, "password": c.Password, "project_id": c.ProjectID})
	s.token = answer["token"].(string)
	s.expect(http.StatusOK, http.MethodGet, "/api/auth/service", nil)
	DeferCleanup(func() {
		Expect(s.State().ForeignRequests).To(BeZero())
	})
	return s
}

// send sends a request with the headers that gobizfly sends, and returns the answer.
func (s *session) send(method, path string, body any) (status int, answer []byte) {
	GinkgoHelper()
	var content bytes.Buffer
	if body != nil {
		Expect(json.NewEncoder(&content).Encode(body)).To(Succeed())
	}
	request, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, &content)
	Expect(err).NotTo(HaveOccurred())
	for name, value := range map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Accept": "application/json; charset=utf-8", "User-Agent": "bizfly-client-go/0.0.1",
		"X-Project-ID": s.Credentials().ProjectID, "Authorization": "Basic ", "X-Auth-Token": s.token, "X-Auth-Type": "token",
	} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, answer
}

// expect sends a request that must be answered with a status, and returns the object that it is answered with.
func (s *session) expect(status int, method, path string, body any) object {
	GinkgoHelper()
	got, answer := s.send(method, path, body)
	Expect(got).To(Equal(status), "%s %s: %s", method, path, answer)
	var decoded object
	_ = json.Unmarshal(answer, &decoded) // a list, or nothing
	return decoded
}

// list is a GET that is answered with an array.
func (s *session) list(path string) []any {
	GinkgoHelper()
	status, answer := s.send(http.MethodGet, path, nil)
	Expect(status).To(Equal(http.StatusOK), "%s", answer)
	var decoded []any
	Expect(json.Unmarshal(answer, &decoded)).To(Succeed())
	return decoded
}

// settle ends all tasks.
func (s *session) settle() { s.Advance(latency) }

// launch creates a server and returns its id once its task is ready.
func (s *session) launch(change object) string {
	GinkgoHelper()
	answer := s.expect(http.StatusOK, http.MethodPost, compute+"/servers", []object{s.create(change)})
	task := answer["task_id"].([]any)[0].(string)
	s.settle()
	done := s.expect(http.StatusOK, http.MethodGet, compute+"/tasks/"+task, nil)
	Expect(done).To(HaveKeyWithValue("ready", true))
	return done["result"].(object)["id"].(string)
}

// create is a create request as in Terraform's documentation.
func (s *session) create(change object) object {
	request := object{
		"name": "terraform", "flavor": "2c_4g", "password": false, "type": "premium", "availability_zone": "HN1", "billing_plan": "on_demand",
		"rootdisk": object{"size": 40, "volume_type": "PREMIUM-HDD1"}, "os": object{"id": s.Options().Catalog.Images["HN"][0].Versions[1].ID, "type": "image"},
		"network_plan": "free_datatransfer", "is_created_wan": false, "sshkey": "ops",
	}
	for key, value := range change {
		request[key] = value
	}
	return request
}

// server is the ground truth of a server.
func (s *session) server(id string) cloud.Server {
	GinkgoHelper()
	for _, server := range s.Servers() {
		if server.ID == id {
			return server
		}
	}
	Fail("there is no server " + id)
	return cloud.Server{}
}
