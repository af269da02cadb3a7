/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package instance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// durable stands for the status of the ProviderConfig.
type durable struct {
	mu      sync.Mutex
	entries map[string]v1alpha1.PendingServer
	err     error
	// naming counts the writes that name a server before its order.
	naming int
	// hold keeps writes from ending.
	hold chan struct{}
}

func (d *durable) Read(context.Context) (map[string]v1alpha1.PendingServer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.entries), d.err
}

func (d *durable) Write(_ context.Context, changes map[string]*v1alpha1.PendingServer) error {
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if lo.SomeBy(lo.Values(changes), func(entry *v1alpha1.PendingServer) bool { return entry != nil && !entry.Handed }) {
		d.naming++
	}
	if d.err != nil {
		return d.err
	}
	if d.entries == nil {
		d.entries = map[string]v1alpha1.PendingServer{}
	}
	for name, entry := range changes {
		if entry == nil {
			delete(d.entries, name)
			continue
		}
		d.entries[name] = *entry
	}
	return nil
}

func (d *durable) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lo.Keys(d.entries)
}

// edit replaces what is written.
func (d *durable) edit(change func(map[string]v1alpha1.PendingServer) map[string]v1alpha1.PendingServer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = change(d.entries)
}

func (d *durable) wipe() {
	d.edit(func(map[string]v1alpha1.PendingServer) map[string]v1alpha1.PendingServer { return nil })
}

func (d *durable) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

var _ = Describe("The durable record of servers", func() {
	ctx := context.Background()
	var written *durable
	var now *clocktesting.FakeClock
	BeforeEach(func() { written, now = &durable{}, clocktesting.NewFakeClock(time.Now()) })
	pending := func(c *instance.Config) { c.Pending = written }
	// claims are those that exist, and whether each holds the id of its server.
	claims := func(exist map[string]bool) instance.ReapRequest {
		return instance.ReapRequest{Claims: func(context.Context) (map[string]bool, error) { return exist, nil }}
	}
	// later is a process that starts anew some time later.
	later := func(w *world, d time.Duration) *instance.DefaultProvider {
		now.SetTime(time.Now().Add(d))
		return w.restart(func(c *instance.Config) { c.Clock = now })
	}
	// forgotten is an order that a process made which has died since, and that has left a disk and no server.
	forgotten := func(w *world) string {
		GinkgoHelper()
		server, _ := w.launch()
		// Nothing is on its way to the record any more.
		Expect(w.provider.Reap(ctx, instance.ReapRequest{})).To(Succeed())
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		Expect(w.leftovers()).To(Equal([]string{"volume " + server.Name + "_rootdisk"}))
		return server.Name
	}

	It("should name a server before it is ordered, until its claim holds its id", func() {
		w := newWorld(cloud.Options{}, pending)
		request, _ := w.request(func(r *instance.LaunchRequest) {
			record := r.Record
			r.Record = func(ctx context.Context, intent instance.Intent) error {
				Expect(written.names()).To(ConsistOf(intent.Name))
				return record(ctx, intent)
			}
		})
		server, _, err := w.provider.Launch(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.provider.Reap(ctx, claims(map[string]bool{claimUID: false}))).To(Succeed())
		Expect(written.names()).To(ConsistOf(server.Name))
		Expect(w.provider.Reap(ctx, claims(map[string]bool{claimUID: true}))).To(Succeed())
		Expect(written.names()).To(BeEmpty())
	})
	It("should keep a server from being ordered that it cannot name", func() {
		w := newWorld(cloud.Options{}, pending)
		written.fail(errors.New("the API server is away"))
		request, intents := w.request()
		_, _, err := w.provider.Launch(ctx, request)
		Expect(err).To(MatchError(ContainSubstring("the API server is away")))
		Expect(intents.all()).To(BeEmpty())
		Expect(w.count(createServer)).To(BeZero())
	})
	It("should forget an order that was refused", func() {
		w := newWorld(cloud.Options{}, pending)
		w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectNoCapacity})
		request, _ := w.request()
		_, _, err := w.provider.Launch(ctx, request)
		Expect(err).To(HaveOccurred())
		Expect(w.provider.Reap(ctx, instance.ReapRequest{})).To(Succeed())
		Expect(written.names()).To(BeEmpty())
	})
	It("should let a process that starts anew delete the disk that a server has left without a claim", func() {
		w := newWorld(cloud.Options{}, pending)
		name := forgotten(w)
		fresh := later(w, 9*time.Minute)
		Expect(fresh.Reap(ctx, claims(nil))).To(Succeed())
		Expect(w.leftovers()).To(HaveLen(1), "somebody may still wait for the server")
		now.Step(2 * time.Minute)
		Eventually(func() []string { Expect(fresh.Reap(ctx, claims(nil))).To(Succeed()); return w.leftovers() }).Should(BeEmpty())
		Expect(written.names()).To(ConsistOf(name), "a disk may still come late")
		now.Step(time.Hour)
		Expect(fresh.Reap(ctx, claims(nil))).To(Succeed())
		Expect(written.names()).To(BeEmpty())
	})
	DescribeTable("should leave a disk alone", func(request func() instance.ReapRequest, prepare func(*world)) {
		w := newWorld(cloud.Options{}, pending)
		forgotten(w)
		prepare(w)
		fresh := later(w, 2*time.Hour)
		for range 3 {
			_ = fresh.Reap(ctx, request())
		}
		Expect(w.leftovers()).To(HaveLen(1))
		Expect(w.count(deleteVolume)).To(BeZero())
	},
		Entry("of a claim that is being launched", func() instance.ReapRequest { return claims(map[string]bool{claimUID: false}) }, func(*world) {}),
		Entry("while it is not known which claims exist", func() instance.ReapRequest {
			return instance.ReapRequest{Claims: func(context.Context) (map[string]bool, error) { return nil, errors.New("no answer") }}
		}, func(*world) {}),
		Entry("that a PersistentVolume names", func() instance.ReapRequest { return claims(nil) }, func(w *world) {
			w.protected.set(nil, w.box.State().Volumes[0].ID)
		}),
		Entry("while it is not known what PersistentVolumes name", func() instance.ReapRequest { return claims(nil) }, func(w *world) {
			w.protected.set(errors.New("no answer"))
		}),
		Entry("in a dry run", func() instance.ReapRequest { r := claims(nil); r.DryRun = true; return r }, func(*world) {}),
		Entry("that another cluster's record names", func() instance.ReapRequest { return claims(nil) }, func(*world) {
			written.edit(func(entries map[string]v1alpha1.PendingServer) map[string]v1alpha1.PendingServer {
				return lo.MapValues(entries, func(entry v1alpha1.PendingServer, _ string) v1alpha1.PendingServer {
					entry.ClusterUID = "another"
					return entry
				})
			})
		}),
		Entry("that nothing names", func() instance.ReapRequest { return claims(nil) }, func(*world) { written.wipe() }),
	)
	It("should name a server without a claim before it is deleted, so that its disk does not outlive the process", func() {
		w := newWorld(cloud.Options{}, pending)
		server, _ := w.launch()
		Expect(w.provider.Reap(ctx, instance.ReapRequest{})).To(Succeed())
		written.wipe()
		w.box.AddFaults(1, cloud.Fault{Method: "DELETE", Path: "/servers/*", Effect: cloud.EffectBody, Body: "{}", Count: 1})
		Expect(w.restart().Delete(ctx, instance.DeleteRequest{ID: server.ID, Name: server.Name, Unclaimed: true})).To(Succeed())
		Expect(written.names()).To(ConsistOf(server.Name))
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		Expect(w.leftovers()).To(HaveLen(1))
		fresh := later(w, time.Hour)
		Eventually(func() []string { Expect(fresh.Reap(ctx, claims(nil))).To(Succeed()); return w.leftovers() }).Should(BeEmpty())
	})
	It("should tell whose servers were never handed over", func() {
		w := newWorld(cloud.Options{}, pending)
		w.launch()
		Expect(w.provider.Reap(ctx, instance.ReapRequest{})).To(Succeed())
		w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectSlowTask, Delay: time.Hour}, cloud.Fault{Effect: cloud.EffectStuck})
		request, _ := w.request(func(r *instance.LaunchRequest) { r.NodeClaimUID = "another-claim" })
		bounded, cancel := contextWithTimeout(200 * time.Millisecond)
		defer cancel()
		written.edit(func(entries map[string]v1alpha1.PendingServer) map[string]v1alpha1.PendingServer {
			entries["late"] = v1alpha1.PendingServer{ClusterUID: clusterUID, NodeClaimUID: "late-claim", Since: metav1.Now()}
			return entries
		})
		_, _, _ = w.provider.Launch(bounded, request)
		uids, err := w.restart().Abandoned(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(uids.UnsortedList()).To(ContainElement("late-claim"))
		Expect(uids.UnsortedList()).NotTo(ContainElement(claimUID))
	})
	It("should be written once for launches at the same moment", func() {
		w := newWorld(cloud.Options{}, pending)
		Expect(w.provider.Reap(ctx, instance.ReapRequest{})).To(Succeed())
		written.hold = make(chan struct{})
		const launches = 50
		var group sync.WaitGroup
		for i := range launches {
			request, _ := w.request(func(r *instance.LaunchRequest) {
				r.NodeClaim, r.NodeClaimUID = fmt.Sprintf("c%d", i), fmt.Sprintf("uid-%d", i)
			})
			group.Go(func() {
				defer GinkgoRecover()
				_, _, err := w.provider.Launch(ctx, request)
				Expect(err).NotTo(HaveOccurred())
			})
		}
		Consistently(func() int { return w.count(createServer) }).WithTimeout(300 * time.Millisecond).Should(BeZero())
		close(written.hold)
		group.Wait()
		Expect(written.names()).To(HaveLen(launches))
		written.mu.Lock()
		defer written.mu.Unlock()
		Expect(written.naming).To(BeNumerically("<", launches/2))
	})
	It("should be bounded, and launches go on beyond its bound", func() {
		w := newWorld(cloud.Options{}, pending)
		written.entries = map[string]v1alpha1.PendingServer{}
		for i := range 2000 {
			written.entries[fmt.Sprintf("server-%d", i)] = v1alpha1.PendingServer{ClusterUID: clusterUID, NodeClaimUID: "x"}
		}
		w.launch()
		Expect(written.names()).To(HaveLen(2000))
	})
})
