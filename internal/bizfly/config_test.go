// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Config", func() {
	valid := func() bizfly.Config {
		return bizfly.Config{Region: "HN", AuthMethod: bizfly.AuthMethodPassword, Email: "user@example.com", Password: password}
	}

	It("should need nothing but a region and credentials", func() { Expect(valid().Validate()).To(Succeed()) })
	DescribeTable("should name the variable, the value and the remedy",
		func(change func(*bizfly.Config), wanted ...string) {
			config := valid()
			change(&config)
			err := config.Validate()
			Expect(err).To(HaveOccurred())
			for _, text := range wanted {
				Expect(err.Error()).To(ContainSubstring(text))
			}
			Expect(err.Error()).ToNot(ContainSubstring("MARKED"))
			Expect(err.Error()).ToNot(ContainSubstring("\n"))
			_, clientErr := bizfly.NewClient(config)
			Expect(clientErr).To(MatchError(err.Error()))
		},
		Entry("unknown region", func(c *bizfly.Config) { c.Region = "HN1" }, "BIZFLY_CLOUD_REGION", `"HN1"`, "HN (HaNoi)", "HCM (HoChiMinh)", "VC-HaNoi"),
		Entry("no region", func(c *bizfly.Config) { c.Region = "" }, "BIZFLY_CLOUD_REGION", "HN (HaNoi)"),
		Entry("plain http", func(c *bizfly.Config) { c.APIURL = "http://cloud.example" }, "BIZFLY_CLOUD_API_URL", "http://cloud.example", "https"),
		Entry("no URL", func(c *bizfly.Config) { c.APIURL = "cloud.example" }, "BIZFLY_CLOUD_API_URL", `"cloud.example"`, "https://manage.bizflycloud.vn/api"),
		Entry("a secret in the URL", func(c *bizfly.Config) { c.APIURL = "https://user:MARKED-secret@cloud.example" }, "BIZFLY_CLOUD_API_URL", "cloud.example"),
		Entry("a secret in a URL without a scheme", func(c *bizfly.Config) { c.APIURL = "user:MARKED-secret@cloud.example" }, "BIZFLY_CLOUD_API_URL"),
		Entry("a URL that cannot be parsed", func(c *bizfly.Config) { c.APIURL = "https://user:MARKED@%zz" }, "BIZFLY_CLOUD_API_URL"),
		Entry("a host that is not allowed", func(c *bizfly.Config) {
			c.APIURL, c.AllowedHosts = "https://bizflycloud.vn.example/api", []string{"*.bizflycloud.vn", "other.example"}
		}, "BIZFLY_CLOUD_ALLOWED_HOSTS", "spec.endpoint", `"https://bizflycloud.vn.example/api"`, "*.bizflycloud.vn"),
		Entry("an address that ends like an allowed host", func(c *bizfly.Config) {
			c.APIURL, c.AllowedHosts = "https://[::ffff:203.0.113.5%25x.bizflycloud.vn]/api", []string{"*.bizflycloud.vn"}
		}, "BIZFLY_CLOUD_ALLOWED_HOSTS", "spec.endpoint"),
		Entry("no email", func(c *bizfly.Config) { c.Email = "" }, "BIZFLY_CLOUD_EMAIL", "set it"),
		Entry("no password", func(c *bizfly.Config) { c.Password = "" }, "BIZFLY_CLOUD_PASSWORD", "set it"),
		Entry("no application credential", func(c *bizfly.Config) { c.AuthMethod = bizfly.AuthMethodAppCredential }, "BIZFLY_CLOUD_APP_CRED_ID",
			"BIZFLY_CLOUD_APP_CRED_SECRET"),
		Entry("unknown method", func(c *bizfly.Config) { c.AuthMethod = "app_credential" }, "BIZFLY_CLOUD_AUTH_METHOD", `"app_credential"`, "application_credential"),
		Entry("bad project", func(c *bizfly.Config) { c.ProjectID = "a/b" }, "BIZFLY_CLOUD_PROJECT_ID", `"a/b"`),
		Entry("bad CA bundle", func(c *bizfly.Config) { c.CABundle = []byte("MARKED") }, "CABundle", "PEM"),
	)
	It("should name everything that is wrong at once", func() {
		Expect(bizfly.Config{}.Validate()).To(MatchError(And(ContainSubstring("BIZFLY_CLOUD_REGION"), ContainSubstring("BIZFLY_CLOUD_AUTH_METHOD"))))
	})
	DescribeTable("should know every spelling of a region", func(name, long string) {
		Expect(bizfly.ParseRegion(name)).To(Equal(long))
	},
		Entry(nil, "HN", "HaNoi"), Entry(nil, "hanoi", "HaNoi"), Entry(nil, "HCM", "HoChiMinh"), Entry(nil, "HoChiMinh", "HoChiMinh"),
		Entry(nil, "vc-hanoi", "VC-HaNoi"),
	)
	It("should never print its secrets", func() {
		config := valid()
		config.AppCredSecret, config.AppCredID = "MARKED-secret", "MARKED-id"
		document, err := json.Marshal(config)
		Expect(err).ToNot(HaveOccurred())
		text := fmt.Sprintf("%v %+v %#v %s %s", config, config, config, config, document)
		Expect(text).ToNot(ContainSubstring("MARKED"))
		Expect(text).To(ContainSubstring("HN"))
	})
})
