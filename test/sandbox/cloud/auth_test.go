// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Logging in", func() {
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })

	tokenFor := func(body map[string]any) answer { return b.call(http.MethodPost, "/api/token", body) }

	It("should return the time when a token expires in both spellings", func() {
		reply := tokenFor(map[string]any{
			"auth_method": "password", "username": b.Credentials().Email, "password": b.Credentials().Password, "project_id": b.Credentials().ProjectID,
		}).object()
		Expect(reply).To(HaveKeyWithValue("expire_at", "2026-03-04T09:06:07.000000Z"))
		Expect(reply).To(HaveKeyWithValue("expires_at", reply["expire_at"]))
		Expect(reply).To(HaveKeyWithValue("project_id", b.Credentials().ProjectID))
		Expect(reply).To(HaveKey("project_name"))
	})
	DescribeTable("should accept only its own credentials",
		func(body map[string]any, status int) { Expect(tokenFor(body).status).To(Equal(status)) },
		Entry("a wrong password", map[string]any{"auth_method": "password", "username": "karpenter@sandbox.bizflycloud.vn", "password": "x"}, 401),
		Entry("a wrong user", map[string]any{"auth_method": "password", "username": "x", "password": "sandbox-password"}, 401),
		Entry("an application credential", map[string]any{
			"auth_method": "application_credential", "credential_id": "9c1f5a7f2d1b4e6f8a3c5b7d9e0f1a2b", "credential_secret": "sandbox-app-credential-secret",
		}, 200),
		Entry("a wrong secret", map[string]any{
			"auth_method": "application_credential", "credential_id": "9c1f5a7f2d1b4e6f8a3c5b7d9e0f1a2b", "credential_secret": "x",
		}, 401),
		Entry("an unknown token to exchange", map[string]any{"auth_method": "token", "token": "x"}, 401),
		Entry("bizflyctl's own name for application credentials", map[string]any{"auth_method": "app_credential"}, 400),
	)
	It("should exchange a token for one of another project", func() {
		reply := tokenFor(map[string]any{"auth_method": "token", "token": b.token, "project_id": "other"}).object()
		Expect(reply).To(HaveKeyWithValue("project_id", "other"))
	})
	It("should reject an unknown token, an expired one and none", func() {
		Expect(b.get(servers).status).To(Equal(200))
		b.clock.Step(4*time.Hour + time.Second)
		Expect(b.get(servers).status).To(Equal(401))
		b.login(b.Credentials().ProjectID, "HN")
		Expect(b.get(servers).status).To(Equal(200))
		b.ExpireTokens()
		Expect(b.get(servers).status).To(Equal(401))
		b.token = ""
		Expect(b.get(servers).status).To(Equal(401))
	})
	It("should accept the headers of an application credential instead of a token", func() {
		client, err := gobizfly.NewClient(gobizfly.WithAPIURL(b.APIURL), gobizfly.WithRegionName("HN"), gobizfly.WithProjectID(b.Credentials().ProjectID))
		Expect(err).ToNot(HaveOccurred())
		_, err = client.Token.Init(context.Background(), &gobizfly.TokenCreateRequest{
			AuthType: "application_credential", AuthMethod: "application_credential", ProjectID: b.Credentials().ProjectID,
			AppCredID: b.Credentials().AppCredID, AppCredSecret: b.Credentials().AppCredSecret,
		})
		Expect(err).ToNot(HaveOccurred())
		list, err := client.CloudServer.List(context.Background(), nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(list).To(BeEmpty())
	})
	It("should answer unknown paths with a page, not JSON", func() {
		for _, path := range []string{"/", "/iaas-cloud/api/nothing", "/api/nothing", servers + "/bizflycloud://x", "/iaas-cloud/apiservers"} {
			a := b.get(path)
			Expect(a.status).To(Equal(404), path)
			Expect(a.header.Get("Content-Type")).To(HavePrefix("text/html"), path)
			Expect(string(a.body)).To(ContainSubstring("<svg"), path)
		}
		Expect(b.call(http.MethodPut, servers, nil).status).To(Equal(405))
	})
	It("should show a project nothing of another", func() {
		server := b.launch(b.request("mine"))
		task := b.create(b.request("mine-too"))
		other := b.login("other", "HN")
		_, err := other.CloudServer.Get(context.Background(), server.ID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		_, err = other.CloudServer.GetTask(context.Background(), task)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		_, err = other.CloudServer.Delete(context.Background(), server.ID, nil)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		_, err = other.KubernetesEngine.Get(context.Background(), b.BKE().ClusterUID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		list, err := other.CloudServer.List(context.Background(), nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(list).To(BeEmpty())
		disks, err := other.CloudServer.Volumes().List(context.Background(), nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(disks).To(BeEmpty())
	})
	It("should keep regions apart", func() {
		server := b.launch(b.request("in-hanoi"))
		hcm := b.login(b.Credentials().ProjectID, "HCM")
		_, err := hcm.CloudServer.Get(context.Background(), server.ID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		request := b.request("in-saigon")
		request.AvailabilityZone, request.VPCNetworkIDs = "HCM1", nil
		_, err = hcm.CloudServer.Create(context.Background(), request)
		Expect(err).ToNot(HaveOccurred())
		_, err = b.client.CloudServer.Create(context.Background(), request)
		Expect(err).To(MatchError(ContainSubstring("HCM1")))
	})
	It("should log in where the default project is, when none is named", func() {
		b := newBox(cloud.Options{DefaultProject: "elsewhere"})
		reply := b.call(http.MethodPost, "/api/token", map[string]any{
			"auth_method": "password", "username": b.Credentials().Email, "password": b.Credentials().Password,
		}).object()
		Expect(reply).To(HaveKeyWithValue("project_id", "elsewhere"))
	})
})
