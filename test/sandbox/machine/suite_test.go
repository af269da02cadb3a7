// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMachine(t *testing.T) { suite.Run(t, "Machine") }

// The machines themselves are tried by test/e2e/nodes: they need root.
var _ = Describe("The metadata service", func() {
	spec := Spec{
		ID: "0b8cf7c5-5f2d-4a7e-9c1e-000000000001", Name: "worker-1", Zone: "HN1", Addresses: []string{"10.108.16.2", "103.56.1.2"},
		Meta: map[string]string{"bke_cluster_id": "of-the-cluster"}, UserData: "#cloud-config\n",
	}
	get := func(address, path string) (int, string) {
		GinkgoHelper()
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.RemoteAddr = address + ":40000"
		recorder := httptest.NewRecorder()
		service(func(address string) (Spec, bool) { return spec, address == spec.Addresses[0] }).ServeHTTP(recorder, request)
		body, err := io.ReadAll(recorder.Body)
		Expect(err).NotTo(HaveOccurred())
		return recorder.Code, string(body)
	}

	It("should tell a server what it is", func() {
		_, body := get("10.108.16.2", "/openstack/latest/meta_data.json")
		Expect(body).To(MatchJSON(`{"uuid": "0b8cf7c5-5f2d-4a7e-9c1e-000000000001", "name": "worker-1", "hostname": "worker-1.novalocal",
			"meta": {"bke_cluster_id": "of-the-cluster"}, "launch_index": 0, "availability_zone": "HN1", "random_seed": "c2FuZGJveA=="}`))
		_, body = get("10.108.16.2", "/latest/meta-data/instance-id")
		Expect(body).To(Equal(spec.ID))
	})
	It("should give it the user data of its create request as it is, and none without", func() {
		_, body := get("10.108.16.2", "/openstack/2018-08-27/user_data")
		Expect(body).To(Equal(spec.UserData))
		spec.UserData = ""
		code, _ := get("10.108.16.2", "/openstack/2018-08-27/user_data")
		Expect(code).To(Equal(http.StatusNotFound))
	})
	It("should name the network interface by the hardware address that it has", func() {
		Expect(spec.mac()).To(Equal("52:54:00:6c:10:02"))
		_, body := get("10.108.16.2", "/openstack/latest/network_data.json")
		Expect(body).To(And(ContainSubstring("52:54:00:6c:10:02"), ContainSubstring("103.56.1.2")))
	})
	It("should answer nobody else", func() {
		code, _ := get("10.108.16.3", "/openstack/latest/user_data")
		Expect(code).To(Equal(http.StatusNotFound))
	})
})
