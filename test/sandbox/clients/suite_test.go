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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
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

var _ = Describe("The Terraform provider", func() {
	var s *session
	BeforeEach(func() { s = login() })
	It("should find that it is allowed to use its region", func() {
		user := s.expect(200, http.MethodGet, "/api/account/user", nil)["data"].(object)
		Expect(user["user_regions"]).To(ContainElement(HaveKeyWithValue("code", "HaNoi")))
	})
	It("should create and delete a server", func() {
		id := s.launch(nil)
		read := s.expect(200, http.MethodGet, compute+"/servers/"+id, nil)
		Expect(read).To(And(HaveKeyWithValue("status", "ACTIVE"), HaveKeyWithValue("flavor_name", "2c_4g"), HaveKeyWithValue("locked", false),
			HaveKeyWithValue("zone_name", "HN1")))
		ports := s.list(compute + "/network-interfaces?status=ACTIVE&type=LAN_WAN")
		Expect(ports).To(HaveExactElements(And(HaveKeyWithValue("device_id", id), HaveKeyWithValue("type", "LAN"))))
		firewall := s.Options().Catalog.Firewalls["HN"][1].ID
		s.expect(200, http.MethodPost, compute+"/network-interfaces/"+ports[0].(object)["id"].(string)+"/action",
			object{"action": "add_firewall", "security_groups": []string{firewall}})
		root := s.server(id).VolumesAttached[0].ID
		task := s.expect(200, http.MethodDelete, compute+"/servers/"+id, object{"delete_volume": []string{root}})["task_id"].(string)
		s.settle()
		s.expect(404, http.MethodGet, compute+"/servers/"+id, nil)
		Expect(s.expect(200, http.MethodGet, compute+"/tasks/"+task, nil)).To(HaveKeyWithValue("ready", true))
		Expect(s.State().Volumes).To(BeEmpty())
	})
})

var _ = Describe("The command line", func() {
	var s *session
	BeforeEach(func() { s = login() })
	It("should launch a server by medium, from a snapshot, and elsewhere", func() {
		s.launch(object{"rootdisk": object{"size": 20, "type": "HDD"}, "is_created_wan": true})
		disk := s.server(s.launch(nil)).VolumesAttached[0].ID
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "s", "volume_id": disk, "force": true})["id"]
		s.launch(object{"name": "from-snapshot", "os": object{"id": snapshot, "type": "snapshot"}})
		answer := s.expect(200, http.MethodPost, "/hcm"+compute+"/servers", []object{s.create(object{"availability_zone": "HCM1",
			"os": object{"id": s.Options().Catalog.Images["HCM"][0].Versions[1].ID, "type": "image"}})})
		s.settle()
		Expect(s.expect(200, http.MethodGet, "/hcm"+compute+"/tasks/"+answer["task_id"].([]any)[0].(string), nil)).To(HaveKeyWithValue("ready", true))
		Expect(s.Servers()).To(HaveLen(4))
	})
	It("should get the answer that the sandbox has no load balancers", func() {
		Expect(s.expect(404, http.MethodGet, "/api/loadbalancers/loadbalancers", nil)).To(HaveKeyWithValue("message", "The sandbox has no load_balancer"))
	})
})

var _ = Describe("The cloud controller manager", func() {
	var s *session
	BeforeEach(func() { s = login() })
	It("should find a server by its name in the complete list, and where it is", func() {
		id := s.launch(object{"name": "node-1"})
		found, _ := lo.Find(s.list(compute+"/servers"), func(server any) bool { return server.(object)["name"] == "node-1" })
		Expect(found).To(And(HaveKeyWithValue("id", id), HaveKeyWithValue("OS-EXT-AZ:availability_zone", "HN1"),
			HaveKeyWithValue("flavor", HaveKeyWithValue("name", "nix.2c_4g")),
			HaveKeyWithValue("ip_addresses", HaveKeyWithValue("LAN", HaveLen(1)))))
	})
	It("should find that a server is gone, also among the nodes that are elsewhere", func() {
		s.expect(404, http.MethodGet, compute+"/servers/366d5fa3-49d2-4c0d-bde5-f542bddb212a", nil)
		Expect(s.expect(404, http.MethodGet, engine+"/_/node_everywhere/366d5fa3-49d2-4c0d-bde5-f542bddb212a", nil)).To(HaveKey("message"))
	})
})

var _ = Describe("The CSI driver", func() {
	var s *session
	BeforeEach(func() { s = login() })
	request := func(change object) object {
		return lo.Assign(object{
			"name": "pvc-1", "description": "default/data by csi-bizflycloud", "size": 20, "volume_type": "SSD", "category": "premium", "availability_zone": "HN1",
		}, change)
	}

	It("should create a volume once, attach it, find its device, detach and delete it", func() {
		Expect(s.list(compute + "/volumes?name=pvc-1")).To(BeEmpty())
		id := s.expect(200, http.MethodPost, compute+"/volumes", request(object{"billing_plan": "on_demand"}))["id"].(string)
		Expect(s.list(compute + "/volumes?name=pvc-1")).To(HaveLen(1))
		node := s.launch(nil)
		s.expect(200, http.MethodPost, compute+"/volumes/"+id+"/action", object{"type": "attach", "instance_uuid": node})
		Expect(s.expect(200, http.MethodGet, compute+"/volumes/"+id, nil)["attachments"]).
			To(HaveExactElements(And(HaveKeyWithValue("server_id", node), HaveKeyWithValue("device", "/dev/vdb"))))
		s.expect(400, http.MethodDelete, compute+"/volumes/"+id, nil)
		s.expect(200, http.MethodPost, compute+"/volumes/"+id+"/action", object{"type": "detach", "instance_uuid": node})
		s.expect(204, http.MethodDelete, compute+"/volumes/"+id, nil)
		Expect(s.expect(200, http.MethodGet, compute+"/volumes/"+id, nil)).To(HaveKeyWithValue("status", "deleting"))
		s.settle()
		s.expect(404, http.MethodGet, compute+"/volumes/"+id, nil)
	})
	It("should attach a volume without a billing plan to servers on demand alone", func() {
		node := s.launch(nil)
		volume := s.expect(200, http.MethodPost, compute+"/volumes", request(nil))
		Expect(volume).To(HaveKeyWithValue("billing_plan", "on_demand"))
		s.expect(200, http.MethodPost, compute+"/volumes/"+volume["id"].(string)+"/action", object{"type": "attach", "instance_uuid": node})
		volume = s.expect(200, http.MethodPost, compute+"/volumes", request(object{"billing_plan": "saving_plan"}))
		rejected := s.expect(400, http.MethodPost, compute+"/volumes/"+volume["id"].(string)+"/action", object{"type": "attach", "instance_uuid": node})
		Expect(rejected["message"]).To(ContainSubstring("gói cước"))
	})
	It("should take a snapshot of a volume in use and make a volume of it", func() {
		node := s.server(s.launch(nil))
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "snapshot-1", "volume_id": node.VolumesAttached[0].ID, "force": true})
		Expect(s.list(compute + "/snapshots?volume_id=" + node.VolumesAttached[0].ID)).To(HaveLen(1))
		s.expect(400, http.MethodPost, compute+"/volumes", request(object{"snapshot_id": snapshot["id"], "size": 20}))
		made := s.expect(200, http.MethodPost, compute+"/volumes", request(object{"snapshot_id": snapshot["id"], "size": 40}))
		Expect(made).To(HaveKeyWithValue("snapshot_id", snapshot["id"]))
	})
})

var _ = Describe("The cluster-autoscaler", func() {
	It("should change the size of a pool alone, and keep all that it leaves out", func() {
		s := login()
		pool := s.AddWorkerPool(cloud.PoolSpec{Name: "pool", Servers: []string{s.launch(nil)}, MinSize: 1, MaxSize: 3})
		path := engine + "/_/" + s.BKE().ClusterUID + "/" + pool
		s.expect(200, http.MethodPatch, path, object{"desired_size": 2})
		s.settle()
		Expect(s.expect(200, http.MethodGet, path, nil)).To(And(HaveKeyWithValue("nodes", HaveLen(2)), HaveKeyWithValue("enable_autoscaling", true),
			HaveKeyWithValue("min_size", 1.0), HaveKeyWithValue("max_size", 3.0)))
	})
})

var _ = Describe("The older Karpenter provider", func() {
	var s *session
	BeforeEach(func() { s = login() })
	It("should launch a server by the medium of its disk, and leave that behind", func() {
		id := s.launch(object{"rootdisk": object{"size": 40, "type": "HDD"}, "password": true, "is_created_wan": true, "vpc_network_ids": []string{s.BKE().NetworkID},
			"user_data": "#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh",
			"metadata":  object{"karpenter-managed": "true", "bizfly_cloud_service": "kubernetes_engine"}})
		Expect(s.server(id)).To(And(HaveField("Metadata", HaveKeyWithValue("karpenter-managed", "true")), HaveField("IPAddresses.WANV4", HaveLen(1))))
		s.expect(200, http.MethodDelete, compute+"/servers/"+id, object{"delete_volume": nil})
		s.settle()
		Expect(s.State().Volumes).To(HaveExactElements(And(HaveField("Name", "terraform_rootdisk"), HaveField("Status", "available"))))
	})
	It("should meet with a page of the gateway where it asks for a provider id", func() {
		status, page := s.send(http.MethodGet, compute+"/servers/bizflycloud://x", nil)
		Expect(status).To(Equal(404))
		Expect(string(page)).To(ContainSubstring("<svg"))
	})
})
