// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// askedFor are the services that gobizfly asks the catalog for, by the names that it uses.
var askedFor = []string{
	"cloud_server", "kubernetes_engine", "bizfly_account", "auto_scaling", "load_balancer", "iam", "dns", "container_registry", "cloud_database",
	"alert", "kafka", "file_storage", "key_management_service", "cdn", "cloud-backup", "simple_storage",
}

var _ = Describe("The service catalog", func() {
	// urls are the first URL of each service for a client that accepts these forms of the region.
	urls := func(b *box, accepts func(region string) bool) map[string]string {
		GinkgoHelper()
		found := map[string]string{}
		for _, entry := range b.get("/api/auth/service").object()["services"].([]any) {
			fields := entry.(map[string]any)
			name, region := fields["canonical_name"].(string), fields["region"].(string)
			if _, known := found[name]; !known && accepts(region) {
				found[name] = fields["service_url"].(string)
			}
		}
		return found
	}

	DescribeTable("should list every service at its own URL for each way to read regions", func(accepts ...string) {
		b := newBox(cloud.Options{})
		found := urls(b, func(region string) bool {
			for _, form := range accepts {
				if form == region {
					return true
				}
			}
			return false
		})
		for _, name := range askedFor {
			Expect(found).To(HaveKeyWithValue(name, HavePrefix(b.URL+"/")), name)
		}
		if strings.EqualFold(accepts[0], "HCM") || accepts[0] == "HoChiMinh" {
			Expect(found["cloud_server"]).To(Equal(b.URL + "/hcm/iaas-cloud/api"))
		} else {
			Expect(found["cloud_server"]).To(Equal(b.URL + "/iaas-cloud/api"))
		}
	},
		Entry("exactly the long name, as gobizfly from March 2024 to v1.1.31", "HaNoi"),
		Entry("exactly the long name in the south", "HoChiMinh"),
		Entry("exactly the short name, as gobizfly before", "HN"),
		Entry("exactly the short name in the south", "HCM"),
		Entry("any form, as gobizfly v1.1.32", "HN", "hn", "HaNoi"),
	)
	It("should write regions in mixed forms by default", func() {
		forms := func(b *box, service string) []string {
			var all []string
			for _, entry := range b.get("/api/auth/service").object()["services"].([]any) {
				if fields := entry.(map[string]any); fields["canonical_name"] == service {
					all = append(all, fields["region"].(string))
				}
			}
			return all
		}
		mixed := newBox(cloud.Options{})
		Expect(forms(mixed, "cloud_server")).To(Equal([]string{"HN", "hn", "HaNoi", "HCM", "hcm", "HoChiMinh"}))
		Expect(forms(mixed, "kubernetes_engine")).To(Equal([]string{"hn", "HaNoi", "HN", "hcm", "HoChiMinh", "HCM"}))
		Expect(forms(newBox(cloud.Options{ServiceRegions: cloud.RegionsScattered}), "bizfly_account")).To(Equal([]string{"HaNoi", "HoChiMinh"}))
		Expect(forms(newBox(cloud.Options{ServiceRegions: cloud.RegionsLong}), "cloud_server")).To(Equal([]string{"HaNoi", "HoChiMinh"}))
		Expect(forms(newBox(cloud.Options{ServiceRegions: cloud.RegionsShort}), "cloud_server")).To(Equal([]string{"HN", "HCM"}))
	})
	It("should answer a JSON 404 for services that the sandbox does not have", func() {
		b := newBox(cloud.Options{})
		_, err := b.client.CloudLoadBalancer.List(context.Background(), &gobizfly.ListOptions{})
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		Expect(err).To(MatchError(ContainSubstring("The sandbox has no load_balancer")))
		for name, base := range urls(b, func(string) bool { return true }) {
			parsed, err := url.Parse(base)
			Expect(err).ToNot(HaveOccurred())
			if slices.Contains([]string{"cloud_server", "kubernetes_engine", "bizfly_account", "auto_scaling"}, name) {
				continue
			}
			a := b.call(http.MethodPost, parsed.Path+"/anything", map[string]any{"any": "thing"})
			Expect(a.status).To(Equal(http.StatusNotFound), name)
			Expect(a.object()).To(HaveKeyWithValue("message", "The sandbox has no "+name))
		}
		Expect(b.State().ForeignRequests).To(BeZero())
	})
})

var _ = Describe("A request that holds more than its endpoint uses", func() {
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	DescribeTable("should be rejected", func(method, path, body, said string) {
		a := b.call(method, path, body)
		Expect(a.status).To(Equal(http.StatusBadRequest))
		Expect(a.object()["message"]).To(ContainSubstring(said))
	},
		Entry("a field that no endpoint knows", http.MethodPost, "/iaas-cloud/api/volumes", `{"name":"x","colour":"red"}`, `unknown field "colour"`),
		Entry("a field of a login", http.MethodPost, "/api/token", `{"auth_method":"password","application_credential_id":"x"}`,
			`unknown field "application_credential_id"`),
		Entry("a field of an element of a create request", http.MethodPost, servers, `[{"name":"x","password":true,"os":{"id":"x","type":"image","arch":"arm64"}}]`,
			`unknown field "arch"`),
		Entry("a parameter", http.MethodGet, servers+"?limit=10", "", "unknown query parameter: limit"),
		Entry("a body of a GET", http.MethodGet, servers, `{"name":"x"}`, "GET takes no body"),
		Entry("a body of a DELETE", http.MethodDelete, "/iaas-cloud/api/snapshots/x", `{"force":true}`, "DELETE takes no body"),
		Entry("two bodies", http.MethodPost, "/iaas-cloud/api/snapshots", `{"name":"x"} {"name":"y"}`, "trailing data"),
	)
	It("should be accepted where the type of the request says why", func() {
		c := b.Credentials()
		Expect(b.call(http.MethodPost, "/api/token", map[string]any{
			"auth_method": "password", "username": c.Email, "password": c.Password, "auth_type": "token",
		}).status).To(Equal(http.StatusOK))
	})
})
