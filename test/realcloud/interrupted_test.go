// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// hiding starts a cloud that lists no server before its task is ready.
func hiding() *cloud.Sandbox {
	GinkgoHelper()
	if !contact.sandbox {
		Skip("servers would cost money: this is for the sandbox")
	}
	box := cloud.Start(cloud.Options{HideBuilding: true, Latency: time.Second, DataDiskDelay: time.Second})
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
		offers, err := r.offerings()
		Expect(err).NotTo(HaveOccurred())
		class, err := r.nodeClass(ctx)
		Expect(err).NotTo(HaveOccurred())
		launching, interrupt := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, _, err := r.launch(launching, class, offers[0])
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

var _ = Describe("Deleting leftovers while a list fails", func() {
	It("should delete the server, and report that more may be left", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(*settings) {})
		launchedBy(ctx, r)
		box.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/snapshots", Effect: cloud.EffectStatus, Status: http.StatusInternalServerError})
		limited, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		Expect(r.deleteLeftovers(limited)).To(MatchError(ContainSubstring("listing snapshots")))
		Expect(box.State().Servers).To(BeEmpty())
		box.ClearFaults()
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
	}, SpecTimeout(time.Minute))
})

var _ = DescribeTable("What is left of a run is looked for where it ran:", func(key, region string, expected OmegaMatcher) {
	id, err := sweepOf(key, region)
	Expect(err).To(expected)
	if err == nil && key != "" {
		Expect(id).To(Equal("83679162-1378-4288-a2d4-70e13ec132aa"))
	}
},
	Entry("nothing is to be removed", "", "HN", Not(HaveOccurred())),
	Entry("in its region", "HN-83679162-1378-4288-a2d4-70e13ec132aa", "HN", Not(HaveOccurred())),
	Entry("in its region by another spelling", "HaNoi-83679162-1378-4288-a2d4-70e13ec132aa", "HN", Not(HaveOccurred())),
	Entry("not in another one", "HN-83679162-1378-4288-a2d4-70e13ec132aa", "HCM", MatchError(ContainSubstring("in another region than BIZFLY_CLOUD_REGION=HCM"))),
	Entry("not where the region is not named", "83679162-1378-4288-a2d4-70e13ec132aa", "HN", MatchError(ContainSubstring("take it whole from the log"))),
	Entry("not where it is no id", "HN-1", "HN", MatchError(ContainSubstring("take it whole from the log"))),
)

var _ = Describe("A snapshot that keeps its server", func() {
	It("should be written down and removed, so that the server is deleted", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(*settings) {})
		server := launchedBy(ctx, r)
		Eventually(func(g Gomega) {
			var err error
			server, err = r.Instances.Get(ctx, server.ID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.Volumes).NotTo(BeEmpty())
			g.Expect(server.Status).To(Equal(instance.StatusActive))
		}).Should(Succeed())
		snapshot := r.obstruct(ctx, server.Volumes[0].ID, nil)
		box.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusBadRequest,
			Message: "Volume has dependent snapshots", Count: 1})
		Eventually(func() error {
			err := r.Instances.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: server.Name, RecordedVolumes: []string{server.Volumes[0].ID}})
			snapshot.look(ctx, server.ID, err)
			return err
		}).Should(MatchError(instance.ErrNotFound))
		snapshot.finish(ctx)
		Expect(r.document().Findings).To(HaveKeyWithValue("disk-with-snapshot", HaveField("Answer", "keeps the server: rejected with 400")))
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
		Expect(box.State()).To(And(HaveField("Servers", BeEmpty()), HaveField("Volumes", BeEmpty())))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("The offerings", func() {
	It("should be of different flavors and within the budget together", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(*settings) {})
		Expect(r.Catalog.Refresh(ctx)).To(Succeed())
		offers, err := r.offerings()
		Expect(err).NotTo(HaveOccurred())
		Expect(offers).To(HaveLen(maxOfferings))
		Expect(lo.UniqBy(offers, func(o offer) string { return o.flavor })).To(HaveLen(maxOfferings))
		Expect(lo.CountBy(offers, func(o offer) bool { return o.old })).To(BeNumerically("<=", 1))
		first := offers[0].price * longest.Hours()
		r.budget = first + offers[1].price*longest.Hours()
		Expect(r.offerings()).To(Equal(offers[:2]))
		r.budget = first - 1
		_, err = r.offerings()
		Expect(err).To(MatchError(ContainSubstring("raise E2E_CLOUD_BUDGET_VND")))
	}, SpecTimeout(time.Minute))
	It("should be launched after one that is rejected or fails", func(ctx SpecContext) {
		box := hiding()
		r := anotherRun(box, func(*settings) {})
		Expect(r.Catalog.Refresh(ctx)).To(Succeed())
		class, err := r.nodeClass(ctx)
		Expect(err).NotTo(HaveOccurred())
		offers, err := r.offerings()
		Expect(err).NotTo(HaveOccurred())
		box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectErrorServer, Count: 1})
		server, o, err := r.launchFirst(ctx, class, offers)
		Expect(err).NotTo(HaveOccurred())
		Expect(o).To(Equal(offers[1]))
		Expect(box.State().Servers).To(ConsistOf(HaveField("ID", server.ID)))
		Expect(r.document().Findings).To(HaveKeyWithValue("launches", HaveField("Answer",
			HaveExactElements(ContainSubstring(offers[0].flavor+" in "), HaveSuffix(": accepted")))))
		Expect(r.deleteLeftovers(ctx)).To(Succeed())
	}, SpecTimeout(time.Minute))
})
