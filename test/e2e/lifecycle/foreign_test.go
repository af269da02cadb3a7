// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// olderProvider does with the servers of the project what the older provider of this cloud does: it takes any server that is
// younger than five minutes and has the metadata karpenter-managed for the one that it waits for, and deletes it later.
type olderProvider struct {
	client  *gobizfly.Client
	adopted sets.Set[string]
}

func newOlderProvider(ctx context.Context) *olderProvider {
	GinkgoHelper()
	variables := env.Sandbox().Env()
	client, err := gobizfly.NewClient(gobizfly.WithAPIURL(variables["BIZFLY_CLOUD_API_URL"]), gobizfly.WithRegionName(variables["BIZFLY_CLOUD_REGION"]),
		gobizfly.WithHTTPClient(&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}))
	Expect(err).NotTo(HaveOccurred())
	login := &gobizfly.TokenCreateRequest{AuthMethod: "password", Username: variables["BIZFLY_CLOUD_EMAIL"],
		Password: variables["BIZFLY_CLOUD_PASSWORD"], ProjectID: variables["BIZFLY_CLOUD_PROJECT_ID"]}
	token := lo.Must(client.Token.Init(ctx, login))
	client.SetKeystoneToken(token)
	return &olderProvider{client: client, adopted: sets.New[string]()}
}

// adopt looks once.
func (o *olderProvider) adopt(ctx context.Context) error {
	servers, err := o.client.CloudServer.List(ctx, &gobizfly.ServerListOptions{})
	if err != nil {
		return err
	}
	for _, server := range servers {
		created, err := time.Parse(time.RFC3339, server.CreatedAt)
		if err == nil && server.Metadata["karpenter-managed"] == "true" && time.Since(created) < 5*time.Minute {
			o.adopted.Insert(server.ID)
		}
	}
	return nil
}

// scaleDown deletes what was adopted, with its disks.
func (o *olderProvider) scaleDown(ctx context.Context) error {
	for id := range o.adopted {
		server, err := o.client.CloudServer.Get(ctx, id)
		if err != nil {
			return err
		}
		disks := lo.Map(server.AttachedVolumes, func(v gobizfly.AttachedVolume, _ int) string { return v.ID })
		if _, err := o.client.CloudServer.Delete(ctx, id, disks); err != nil {
			return err
		}
	}
	return nil
}

var _ = Describe("An older provider in the same project and cluster", func() {
	It("should keep its servers and adopt none of ours", func() {
		older := newOlderProvider(ctx)
		theirs := &cloud.Server{}
		Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers",
			map[string]any{"name": "older-provider-1", "zone": "HN1", "metadata": map[string]string{"karpenter-managed": "true"}}, theirs)).To(Succeed())

		pool := readyPool()
		web := deployment(pool, 2, environment.Apart)
		create(web)
		// It waits for a server of its own the whole time in which ours are young.
		Eventually(func(g Gomega) {
			g.Expect(older.adopt(ctx)).To(Succeed())
			g.Expect(running(g, web)).To(HaveLen(2))
		}).Should(Succeed())
		Expect(servers(Default, pool)).To(HaveLen(2))
		for _, server := range servers(Default, pool) {
			Expect(server.Metadata).To(And(HaveKeyWithValue(v1alpha1.MetadataManaged, "true"), Not(HaveKey("karpenter-managed"))))
		}
		Expect(older.adopted.UnsortedList()).To(ConsistOf(theirs.ID))

		By("letting our garbage collection pass by its server for longer than its grace")
		Consistently(func(g Gomega) {
			g.Expect(e2e.Truth(g, env).Servers).To(ContainElement(And(HaveField("ID", theirs.ID), HaveField("Status", "ACTIVE"))))
		}).WithTimeout(60 * time.Second).WithPolling(2 * time.Second).Should(Succeed())

		By("letting it delete what it has adopted")
		Expect(older.scaleDown(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(lo.Map(e2e.Truth(g, env).Servers, func(s cloud.Server, _ int) string { return s.ID })).
				To(ConsistOf(lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return s.ID })))
		}).Should(Succeed())
		Expect(running(Default, web)).To(HaveLen(2))
		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(servers(g, pool)).To(BeEmpty()) }).Should(Succeed())
	})
})
