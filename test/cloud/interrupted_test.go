// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// hiding starts a cloud that lists no server before its task is ready.
func hiding() *cloud.Sandbox {
	GinkgoHelper()
	if !contact.sandbox {
		Skip("servers would cost money: this is for the sandbox")
	}
	box := cloud.Start(cloud.Options{HideBuilding: true, Latency: time.Second})
	DeferCleanup(box.Close)
	return box
}

// anotherRun is a run in that cloud, which joins no cluster.
func anotherRun(box *cloud.Sandbox, change func(*settings)) *run {
	GinkgoHelper()
	credentials := box.Credentials()
	s, err := read(map[string]string{
		"BIZFLY_CLOUD_API_URL": box.APIURL, "BIZFLY_CLOUD_ALLOW_HTTP": "true", "BIZFLY_CLOUD_REGION": credentials.Region,
		"BIZFLY_CLOUD_PROJECT_ID": credentials.ProjectID, "BIZFLY_CLOUD_APP_CRED_ID": credentials.AppCredID,
		"BIZFLY_CLOUD_APP_CRED_SECRET": credentials.AppCredSecret, "E2E_CLOUD_BUDGET_VND": "20000",
	})
	Expect(err).NotTo(HaveOccurred())
	change(&s)
	r, err := newRun(s)
	Expect(err).NotTo(HaveOccurred())
	return r
}

var _ = Describe("Deleting leftovers of an interrupted launch", func() {
	// interrupted sends a create request and loses interest once the cloud has it.
	interrupted := func(ctx SpecContext, r *run, box *cloud.Sandbox) {
		GinkgoHelper()
		Expect(r.Catalog.Refresh(ctx)).To(Succeed())
		o, err := r.cheapest()
		Expect(err).NotTo(HaveOccurred())
		class, err := r.nodeClass(ctx)
		Expect(err).NotTo(HaveOccurred())
		launching, interrupt := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, _, err := r.launch(launching, class, o, 1)
			ended <- err
		}()
		Eventually(func() int { return len(box.State().Servers) }, "10s", "10ms").Should(Equal(1))
		interrupt()
		Eventually(ended).Should(Receive(HaveOccurred()))
		Expect(r.api.ListServers(ctx)).To(BeEmpty(), "the cloud hides it")
	}

	It("should wait for the task of a server that no list shows yet", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(s *settings) { s.quiet = time.Hour })
		interrupted(ctx, r, box)
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
		Expect(box.State()).To(And(HaveField("Servers", BeEmpty()), HaveField("Volumes", BeEmpty())))
	}, SpecTimeout(time.Minute))

	It("should wait for what may come of a request without an answer", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(*settings) {})
		box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectLostResponse})
		interrupted(ctx, r, box)
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
		Expect(box.State()).To(And(HaveField("Servers", BeEmpty()), HaveField("Volumes", BeEmpty())))
	}, SpecTimeout(time.Minute))

	It("should wait for what may come of a run of which only the id is known", func(ctx SpecContext) {
		box := hiding()
		died := anotherRun(box, func(*settings) {})
		interrupted(ctx, died, box)
		r := anotherRun(box, func(s *settings) { s.leftoversOf = died.id })
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
		Expect(box.State()).To(And(HaveField("Servers", BeEmpty()), HaveField("Volumes", BeEmpty())))
	}, SpecTimeout(time.Minute))
})
