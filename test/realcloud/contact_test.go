// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// seen is what a second observer has seen while the server was built.
type seen struct {
	// listed is whether the server was in the list before its task was ready, and with which states.
	listed bool
	states []string
	// atReady is the server's state when the task was ready: "absent" when it was not listed, neverReady when the task was not.
	atReady string
	// named is whether the task's result names the server.
	named bool
}

const neverReady = "its task was not ready in time"

// watch looks at list and task while a server is built.
func (r *run) watch(ctx context.Context) seen {
	s := seen{atReady: neverReady}
	for ctx.Err() == nil {
		if name, taskID := r.accepted(); taskID != "" {
			task, taskErr := r.api.GetTask(ctx, taskID)
			servers, listErr := r.api.ListServers(ctx)
			if taskErr == nil && listErr == nil {
				server, found := lo.Find(servers, func(s *gobizfly.Server) bool { return s.Name == name })
				if found {
					s.states = lo.Union(s.states, []string{server.Status})
				}
				if task.Ready {
					s.atReady, s.named = "absent", task.Server != nil
					if found {
						s.atReady = server.Status
					}
					return s
				}
				s.listed = s.listed || found
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.poll):
		}
	}
	return s
}

// record writes down what was seen while the server was built.
func (r *run) record(s seen) {
	GinkgoHelper()
	if r.sandbox {
		Expect(s.atReady).NotTo(Equal(neverReady))
	}
	r.behaves("listed-before-ready", "whether a server is listed before its task is ready", s.listed)
	r.behaves("state-at-ready", "the server's state when its task is ready", s.atReady)
	r.behaves("task-names-server", "whether the task's result names the server", s.named)
	r.behaves("task-success", "whether a ready task says that it succeeded", r.hasField("GET cloud_server/tasks/{id} 200", "result.success"))
	r.find("states", "the states that the server was seen in while it was built", lo.Must(sorted(s.states)))
}

// filter reports what GET /servers?name= means, by asking for parts and variants of the name of a server that there is.
func (r *run) filter(ctx context.Context, name string) (string, error) {
	meets := func(query string) (bool, error) {
		status, body, err := r.recorder.Ask(ctx, "cloud_server", "/servers?name="+url.QueryEscape(query))
		if err != nil || status >= 300 {
			return false, err
		}
		var servers []struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(body, &servers); err != nil {
			return false, fmt.Errorf("decoding servers by name: %w", err)
		}
		return slices.ContainsFunc(servers, func(s struct {
			Name string `json:"name"`
		}) bool {
			return s.Name == name
		}), nil
	}
	for _, try := range []struct{ query, meaning string }{
		{"no-server-has-this-name", "ignored"},
		{"^" + name[:12] + ".*$", "regular expression"},
		{name[4:12], "part"},
		{name[:12], "beginning"},
		{strings.ToUpper(name), "whole in any case"},
		{name, "whole"},
	} {
		met, err := meets(try.query)
		if err != nil {
			return "", err
		}
		if met {
			return try.meaning, nil
		}
	}
	return "nothing", nil
}

// Each spec is run, also after another one has failed: each answer counts, and there may be no second run. What needs a server is skipped
// without one.
var _ = Describe("First contact", Ordered, ContinueOnFailure, func() {
	var (
		class *v1alpha1.BizflyNodeClass
		// offers are within the budget; chosen is the one that was launched.
		offers []offer
		chosen offer
		server *instance.Instance
		ports  []string
	)
	needsOffer := func() {
		if len(offers) == 0 {
			Skip("it is not known what can be launched within the budget")
		}
	}
	needsServer := func() {
		if server == nil {
			Skip("no server was launched")
		}
	}

	// Whatever happens, also Ctrl-C, and once more at the end of all: a server that is left behind costs money.
	BeforeAll(func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) {
			Expect(contact.deleteLeftovers(ctx)).To(Succeed())
		}, NodeTimeout(20*time.Minute))
		scope, err := contact.api.Scope(ctx)
		Expect(err).NotTo(HaveOccurred())
		if scope.ProjectID != contact.client.ProjectID {
			Fail("the login is for another project than BIZFLY_CLOUD_PROJECT_ID: nothing is asked") // the log must show neither
		}
		if contact.settings.leftoversOf != "" {
			Skip("only what is left of run " + contact.key() + " is removed")
		}
	}, NodeTimeout(time.Minute))

	// After each spec, so that what was learned outlives a process that is killed.
	AfterEach(func() {
		if err := contact.save(); err != nil {
			GinkgoWriter.Println(err)
		}
	})
	It("should offer a server within the budget", func(ctx SpecContext) {
		Expect(contact.Catalog.Refresh(ctx)).To(Succeed())
		resolved, err := contact.nodeClass(ctx)
		Expect(err).NotTo(HaveOccurred())
		resolved.Spec.DataDisks = []v1alpha1.DataDisk{{Size: resource.NewQuantity(dataDiskGiB<<30, resource.BinarySI)}}
		class = resolved
		offers, err = contact.offerings()
		Expect(err).NotTo(HaveOccurred())
		chosen = offers[0]
	}, SpecTimeout(2*time.Minute))
	It("should show its catalog", func() {
		describe(contact)
	})
	It("should show the account", func(ctx SpecContext) {
		contact.askAccount(ctx)
	}, SpecTimeout(2*time.Minute))
	It("should answer for what does not exist", func(ctx SpecContext) {
		needsOffer()
		_, err := contact.api.GetServer(ctx, string(uuid.NewUUID()))
		Expect(bizfly.IsNotFound(err)).To(BeTrue(), "a server that never was: %v", err)
		_, err = contact.api.GetTask(ctx, string(uuid.NewUUID()))
		contact.behaves("unknown-task", "the answer for a task that never existed", said(err))
		bases := []string{}
		for _, service := range []string{"cloud_server", "api"} {
			status, _, err := contact.recorder.Ask(ctx, service, "/flavor-generations?az="+chosen.zone)
			Expect(err).NotTo(HaveOccurred())
			if status == 200 {
				bases = append(bases, service)
			}
		}
		contact.behaves("flavor-generations", "which services have flavor generations", bases)
	}, SpecTimeout(2*time.Minute))
	It("should show what BKE's own pools are like", func(ctx SpecContext) {
		contact.askPools(ctx)
	}, SpecTimeout(3*time.Minute))
	It("should reject what cannot be launched, and create nothing of it", func(ctx SpecContext) {
		needsOffer()
		none := chosen
		none.flavor = "e2e.no_such_flavor"
		// Rejections are remembered by NodeClass. The one that is launched must not be sent in another form because of this one.
		another := class.DeepCopy()
		another.Generation = 1
		_, _, err := contact.launch(ctx, another, none)
		Expect(err).To(HaveOccurred())
		contact.behaves("unknown-flavor", "the outcome of a create request with an unknown flavor", said(err))
		GinkgoWriter.Printf("an unknown flavor: %s\n", err)

		broken := class.DeepCopy()
		broken.Status.Images[0].ID = string(uuid.NewUUID())
		_, _, err = contact.launch(ctx, broken, chosen)
		Expect(err).To(HaveOccurred())
		contact.behaves("unknown-image", "the outcome of a create request with an unknown image", said(err))
		GinkgoWriter.Printf("an unknown image: %s\n", err)
		broken.Generation = 1
		contact.shortName(ctx, broken, chosen, err)

		limited, cancel := context.WithTimeout(ctx, contact.patience)
		defer cancel()
		Expect(contact.deleteLeftovers(limited)).To(Succeed(), "what such a request leaves behind")
	}, SpecTimeout(40*time.Minute))
	It("should launch one server", func(ctx SpecContext) {
		needsOffer()
		// Also where the last spec failed because something was built after all.
		limited, cancel := context.WithTimeout(ctx, contact.patience)
		defer cancel()
		Expect(contact.deleteLeftovers(limited)).To(Succeed())
		var err error
		server, chosen, err = contact.launchFirst(ctx, class, offers)
		Expect(err).NotTo(HaveOccurred())
		contact.dataDisk(ctx, server)
		withDisks, err := contact.Instances.Get(ctx, server.ID)
		Expect(err).NotTo(HaveOccurred())
		server = withDisks
	}, SpecTimeout(40*time.Minute))
	It("should give the server what was requested", func(ctx SpecContext) {
		needsServer()
		all, err := contact.api.ListServers(ctx)
		Expect(err).NotTo(HaveOccurred())
		raw, found := lo.Find(all, func(s *gobizfly.Server) bool { return s.ID == server.ID })
		Expect(found).To(BeTrue())
		contact.behaves("flavor-name", "whether the server's flavor has the name that the catalog has, which is the node's label", raw.Flavor.Name == chosen.flavor)
		contact.behaves("billing-plan", "the plan that the server has when on_demand was requested", raw.BillingPlan)
		contact.behaves("metadata-added", "the metadata keys that the cloud adds", lo.Must(sorted(lo.Filter(lo.Keys(raw.Metadata), func(key string, _ int) bool {
			return !lo.SomeBy(v1alpha1.ReservedMetadataPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		}))))

		disks := lo.Filter(raw.AttachedVolumes, func(v gobizfly.AttachedVolume, _ int) bool { return v.AttachedType == "rootdisk" })
		contact.behaves("root-disk-name", "whether the root disk is called <server>_rootdisk",
			lo.ContainsBy(disks, func(v gobizfly.AttachedVolume) bool { return v.Name == raw.Name+"_rootdisk" }))
		used, err := contact.Instances.Ports(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		ports = used.Of(server.ID, time.Time{})
		contact.networksAdded(ctx, "networks-added", "when it ran", class, server.ID)
		contact.behaves("ports", "how many network interfaces, private and public, are listed as the server's", len(ports))

		interfaces, err := contact.api.ListNetworkInterfaces(ctx)
		Expect(err).NotTo(HaveOccurred())
		contact.behaves("port-names", "whether its network interfaces are named after the server, which proves whose they are when it is gone",
			lo.EveryBy(interfaces, func(p *gobizfly.NetworkInterface) bool {
				return !slices.Contains(ports, p.ID) || p.Name == raw.Name || strings.HasPrefix(p.Name, raw.Name+"-")
			}))

		meaning, err := contact.filter(ctx, raw.Name)
		Expect(err).NotTo(HaveOccurred())
		contact.behaves("name-filter", "what ?name= of the list of servers compares with", meaning)

		// Last, since one that fails must lose no answer. One by one: a failure prints its value, and the others hold what nodes join with.
		name, _ := contact.accepted()
		Expect(raw.Name).To(Equal(name), "nodes are found by it")
		Expect(raw.Metadata[v1alpha1.MetadataClusterUID]).To(Equal(contact.id), "we know our servers by it")
		Expect(raw.Metadata[v1alpha1.MetadataNodeClaimUID]).To(Equal(contact.id), "we know our servers by it")
		Expect(raw.AvailabilityZone).To(Equal(chosen.zone))
		Expect(disks).To(HaveLen(1), "one root disk, known by attached_type")
		Expect(disks[0].Size).To(Equal(rootDiskGiB))
	}, SpecTimeout(3*time.Minute))
	It("should show what other clients than ours meet", func(ctx SpecContext) {
		needsServer()
		contact.askDefaults(ctx, class, server, chosen.zone)
	}, SpecTimeout(3*time.Minute))
	It("should let the server join", func(ctx SpecContext) {
		needsServer()
		if joins, lacking := contact.joins(); !joins {
			Skip("the server joins no cluster: " + lacking)
		}
		contact.join(ctx, class, server, chosen)
	}, SpecTimeout(25*time.Minute))
	It("should show by which names old flavors are known", func(ctx SpecContext) {
		needsServer()
		contact.oldFlavors(ctx, class, chosen)
	}, SpecTimeout(10*time.Minute))
	It("should show what has changed while the server ran", func(ctx SpecContext) {
		needsServer()
		contact.networksAdded(ctx, "networks-added-later", "later", class, server.ID)
		contact.workerImagesAgain(ctx)
		if joins, _ := contact.joins(); joins {
			contact.nodeStays(ctx, server.Name)
		}
	}, SpecTimeout(3*time.Minute))
	It("should delete the server with all that is its own", func(ctx SpecContext) {
		needsServer()
		begun := time.Now()
		disks := lo.Map(server.Volumes, func(v instance.Volume, _ int) string { return v.ID })
		root, _ := lo.Find(server.Volumes, func(v instance.Volume) bool { return v.Root })
		// What was seen on the server is known as its own when it is gone.
		_, err := contact.left(ctx)
		Expect(err).NotTo(HaveOccurred())
		snapshot := contact.obstruct(ctx, root.ID, ports)
		request := instance.DeleteRequest{ID: server.ID, Node: server.Name, RecordedVolumes: disks}
		Eventually(func() error {
			err := contact.Instances.Delete(ctx, request)
			snapshot.look(ctx, server.ID, err)
			return err
		}).WithContext(ctx).Should(MatchError(instance.ErrNotFound))
		snapshot.finish(ctx)
		contact.find("delete-seconds", "how many seconds until the server and its disk were gone", int(time.Since(begun).Seconds()))

		all, err := contact.api.ListServers(ctx)
		Expect(err).NotTo(HaveOccurred())
		fate := "absent"
		if raw, found := lo.Find(all, func(s *gobizfly.Server) bool { return s.ID == server.ID }); found {
			fate = raw.Status
		}
		contact.behaves("deleted-server", "how a deleted server is listed", fate)
		contact.portsLeft(ctx)
		Eventually(func(g Gomega) {
			leftovers, err := contact.Instances.Leftovers(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for _, leftover := range leftovers {
				if leftover.Kept != "" {
					continue
				}
				g.Expect(contact.Instances.DeleteLeftover(ctx, leftover)).To(Succeed())
			}
			volumes, err := contact.api.ListVolumes(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(lo.Map(volumes, func(v *gobizfly.Volume, _ int) string { return v.ID })).NotTo(ContainElement(BeElementOf(disks)), "they were asked to go")
			left, err := contact.left(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left.none()).To(BeTrue(), "left: %s", left)
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
	It("should show what it has cost, and what becomes of the task", func(ctx SpecContext) {
		needsServer()
		contact.askBill(ctx, chosen.price, server.CreatedAt)
		contact.askTask(ctx)
	}, SpecTimeout(2*time.Minute))
})

var _ = AfterSuite(func(ctx SpecContext) {
	if contact == nil {
		return
	}
	Expect(contact.deleteLeftovers(ctx)).To(Succeed())
	_ = os.Remove(contact.marker())
	Expect(contact.save()).To(Succeed())
	if contact.leftoversOf == "" {
		GinkgoWriter.Printf("what the cloud answered is in %s\n", contact.answers)
	}
	if box != nil {
		state, err := box.Sandbox().State(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(lo.Filter(state.Servers, ofThisRun)).To(BeEmpty(), "the ground truth")
		count, hosts := box.ForeignRequests()
		Expect(count).To(BeZero(), "asked: %v", hosts)
	}
}, NodeTimeout(20*time.Minute))
