// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

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

var _ = Describe("First contact", Ordered, func() {
	var (
		class  *v1alpha1.BizflyNodeClass
		chosen offer
		server *instance.Instance
		ports  []string
	)

	// Whatever happens, also Ctrl-C, and once more at the end of all: a server that is left behind costs money.
	BeforeAll(func() {
		DeferCleanup(func(ctx SpecContext) {
			Expect(contact.deleteLeftovers(ctx)).To(Succeed())
		}, NodeTimeout(20*time.Minute))
		if contact.settings.leftoversOf != "" {
			Skip("only what is left of run " + contact.id + " is removed")
		}
	})

	AfterAll(func() {
		d := contact.document()
		if len(d.Answers) > 0 {
			Expect(d.Write(contact.answers, contact.secrets())).To(Succeed())
			GinkgoWriter.Printf("what the cloud answered is in %s\n", contact.answers)
		}
	})

	It("should log in to the project that was named, and to no other", func(ctx SpecContext) {
		scope, err := contact.api.Scope(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(scope.ProjectID).To(Equal(contact.client.ProjectID))
	}, SpecTimeout(time.Minute))

	It("should offer a server within the budget", func(ctx SpecContext) {
		Expect(contact.Catalog.Refresh(ctx)).To(Succeed())
		var err error
		chosen, err = contact.cheapest()
		Expect(err).NotTo(HaveOccurred())
		cost := chosen.price * longest.Hours()
		Expect(cost).To(BeNumerically("<=", contact.budget),
			"%s in %s costs about %.0f VND for %s: raise E2E_CLOUD_BUDGET_VND or name a smaller E2E_CLOUD_FLAVOR", chosen.flavor, chosen.zone, cost, longest)
		class, err = contact.nodeClass(ctx)
		Expect(err).NotTo(HaveOccurred())
		class.Spec.DataDisks = []v1alpha1.DataDisk{{Size: resource.NewQuantity(dataDiskGiB<<30, resource.BinarySI)}}
		describe(contact)
		contact.askAccount(ctx)
	}, SpecTimeout(2*time.Minute))

	It("should answer for what does not exist", func(ctx SpecContext) {
		_, err := contact.api.GetServer(ctx, uuid.NewString())
		Expect(bizfly.IsNotFound(err)).To(BeTrue(), "a server that never was: %v", err)
		_, err = contact.api.GetTask(ctx, uuid.NewString())
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

	It("should reject what cannot be launched, and create nothing of it", func(ctx SpecContext) {
		none := chosen
		none.flavor = "e2e.no_such_flavor"
		_, _, err := contact.launch(ctx, class, none, 1)
		Expect(err).To(HaveOccurred())
		contact.behaves("unknown-flavor", "the outcome of a create request with an unknown flavor", said(err))
		GinkgoWriter.Printf("an unknown flavor: %s\n", err)

		broken := class.DeepCopy()
		broken.Status.Images[0].ID = uuid.NewString()
		_, _, err = contact.launch(ctx, broken, chosen, 2)
		Expect(err).To(HaveOccurred())
		contact.behaves("unknown-image", "the outcome of a create request with an unknown image", said(err))
		GinkgoWriter.Printf("an unknown image: %s\n", err)
		contact.shortName(ctx, broken, chosen, err)

		limited, cancel := context.WithTimeout(ctx, contact.patience)
		defer cancel()
		Expect(contact.deleteLeftovers(limited)).To(Succeed(), "what such a request leaves behind")
	}, SpecTimeout(40*time.Minute))

	It("should launch one server", func(ctx SpecContext) {
		begun := time.Now()
		watching, stop := context.WithTimeout(ctx, contact.patience)
		defer stop()
		contact.mu.Lock()
		contact.name, contact.taskID = "", ""
		contact.mu.Unlock()
		watched := make(chan seen, 1)
		go func() { watched <- contact.watch(watching) }()
		var err error
		for attempt := 4; attempt == 4 || attempt < 10 && errors.Is(err, instance.ErrFormRejected); attempt++ {
			server, _, err = contact.launch(ctx, class, chosen, attempt)
		}
		Expect(err).NotTo(HaveOccurred())
		contact.find("id-seconds", "how many seconds until the server's id was known", int(time.Since(begun).Seconds()))

		Eventually(func(g Gomega) {
			server, err = contact.Instances.Get(ctx, server.ID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.Failed()).To(BeFalse())
			g.Expect(server.Status).To(Equal(instance.StatusActive))
		}).WithContext(ctx).Should(Succeed())
		contact.find("active-seconds", "how many seconds until the server ran", int(time.Since(begun).Seconds()))

		var s seen
		Eventually(watched).WithContext(ctx).Should(Receive(&s))
		if contact.sandbox {
			Expect(s.atReady).NotTo(Equal(neverReady))
		}
		contact.behaves("listed-before-ready", "whether a server is listed before its task is ready", s.listed)
		contact.behaves("state-at-ready", "the server's state when its task is ready", s.atReady)
		contact.behaves("task-names-server", "whether the task's result names the server", s.named)
		contact.find("states", "the states that the server was seen in while it was built", lo.Must(sorted(s.states)))
		contact.dataDisk(ctx, server)
		server, err = contact.Instances.Get(ctx, server.ID)
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(35*time.Minute))

	It("should show by which names old flavors are known", func(ctx SpecContext) {
		contact.oldFlavors(ctx, class, chosen)
	}, SpecTimeout(10*time.Minute))

	It("should give the server what was requested", func(ctx SpecContext) {
		all, err := contact.api.ListServers(ctx)
		Expect(err).NotTo(HaveOccurred())
		raw, found := lo.Find(all, func(s *gobizfly.Server) bool { return s.ID == server.ID })
		Expect(found).To(BeTrue())
		name, _ := contact.accepted()
		Expect(raw.Name).To(Equal(name), "nodes are found by it")
		Expect(raw.Metadata).To(And(HaveKeyWithValue(v1alpha1.MetadataClusterUID, contact.id), HaveKeyWithValue(v1alpha1.MetadataNodeClaimUID, contact.id)),
			"we know our servers by it")
		Expect(raw.AvailabilityZone).To(Equal(chosen.zone))
		contact.behaves("flavor-name", "whether the server's flavor has the name that the catalog has, which is the node's label", raw.Flavor.Name == chosen.flavor)
		contact.behaves("billing-plan", "the plan that the server has when on_demand was requested", raw.BillingPlan)
		contact.behaves("metadata-added", "the metadata keys that the cloud adds", lo.Must(sorted(lo.Filter(lo.Keys(raw.Metadata), func(key string, _ int) bool {
			return !lo.SomeBy(v1alpha1.ReservedMetadataPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		}))))

		disks := lo.Filter(raw.AttachedVolumes, func(v gobizfly.AttachedVolume, _ int) bool { return v.AttachedType == "rootdisk" })
		Expect(disks).To(HaveLen(1), "one root disk, known by attached_type")
		Expect(disks[0].Size).To(Equal(rootDiskGiB))
		contact.behaves("root-disk-name", "whether the root disk is called <server>_rootdisk", disks[0].Name == raw.Name+"_rootdisk")
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

		contact.askDefaults(ctx, class, raw, chosen.zone)
	}, SpecTimeout(3*time.Minute))

	It("should let the server join", func(ctx SpecContext) {
		if joins, lacking := contact.joins(); !joins {
			Skip("the server joins no cluster, because these are not set: " + lacking)
		}
		contact.join(ctx, class, server, chosen)
	}, SpecTimeout(20*time.Minute))

	It("should show what BKE's own pools are like", func(ctx SpecContext) {
		contact.askPools(ctx)
	}, SpecTimeout(3*time.Minute))

	It("should delete the server with all that is its own", func(ctx SpecContext) {
		begun := time.Now()
		disks := lo.Map(server.Volumes, func(v instance.Volume, _ int) string { return v.ID })
		root, _ := lo.Find(server.Volumes, func(v instance.Volume) bool { return v.Root })
		contact.networksAdded(ctx, "networks-added-later", "later", class, server.ID)
		contact.workerImagesAgain(ctx)
		if joins, _ := contact.joins(); joins {
			contact.nodeStays(ctx, server.Name)
		}
		snapshot := contact.obstruct(ctx, root.ID, ports)
		request := instance.DeleteRequest{ID: server.ID, Node: server.Name, RecordedVolumes: disks}
		Eventually(func() error {
			err := contact.Instances.Delete(ctx, request)
			snapshot.look(ctx, server.ID)
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
		contact.askTask(ctx)
		contact.askBill(ctx)
		contact.behaves("deleted-server", "how a deleted server is listed", fate)
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
})

var _ = AfterSuite(func(ctx SpecContext) {
	if contact == nil {
		return
	}
	Expect(contact.deleteLeftovers(ctx)).To(Succeed())
	if box != nil {
		state, err := box.Sandbox().State(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(lo.Filter(state.Servers, ofThisRun)).To(BeEmpty(), "the ground truth")
		count, hosts := box.ForeignRequests()
		Expect(count).To(BeZero(), "asked: %v", hosts)
	}
}, NodeTimeout(20*time.Minute))

// describe records the catalog.
func describe(r *run) {
	GinkgoHelper()
	snapshot, err := r.Catalog.Snapshot()
	Expect(err).NotTo(HaveOccurred())
	names := func(of []string) []string { return lo.Must(sorted(lo.Uniq(of))) }
	r.find("billing-plans", "the billing plans of flavors", names(lo.FlatMap(snapshot.Flavors,
		func(f *gobizfly.ServerFlavorResponse, _ int) []string { return f.BillingPlans })))
	r.find("categories", "what categories flavors have",
		names(lo.Map(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) string { return f.Category })))
	r.find("gpu-flavors", "what flavors with GPUs are called", names(lo.FilterMap(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) (string, bool) {
		return f.Name, f.GPU != nil
	})))
	r.find("volume-types", "what volume types there are, by category and zones", names(lo.Map(snapshot.VolumeTypes, func(v *gobizfly.VolumeType, _ int) string {
		return fmt.Sprintf("%s (%s, %s): %s", v.Name, v.Type, v.Category, strings.Join(v.AvailabilityZones, ", "))
	})))
	old := lo.Filter(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) bool { return f.Generation.Code == "" })
	r.find("old-flavors", "how many flavors are listed without a generation, and how many of these are said to be new or name billing plans", map[string]int{
		"listed": len(old), "is_new": lo.CountBy(old, func(f *gobizfly.ServerFlavorResponse) bool { return f.IsNew }),
		"billing_plans":   lo.CountBy(old, func(f *gobizfly.ServerFlavorResponse) bool { return len(f.BillingPlans) > 0 }),
		"of a generation": len(snapshot.Flavors) - len(old),
	})
	r.find("zones", "what zones there are", names(lo.Map(snapshot.Region.Zones, func(z gobizfly.AvailabilityZone, _ int) string { return z.ShortName })))
	r.workerImages = workerImages(snapshot.KubernetesVersions)
	r.find("worker-images", "whether each Kubernetes version has a worker image", lo.EveryBy(snapshot.KubernetesVersions, func(v gobizfly.ControllerVersion) bool {
		return v.WorkerImageID != ""
	}))
	r.find("not-asked", "what this run does not find out, and why", map[string]string{
		"saving plans":         "they are prepaid, and an invoice shows what is refunded",
		"changes of the plan":  "a server that changes to a saving plan is paid for in advance",
		"small workers":        "whether a node with less than 2 vCPUs and 2 GiB becomes ready: it takes a second server",
		"parts that fail":      "what the cloud does while regions, server types or volume types cannot be read: it must fail for that",
		"console logs":         "no public client has a call for what a server prints while it boots",
		"stopped servers":      "an invoice shows their price: a started hour of one, and of the disk",
		"unpaid accounts":      "the answer to a launch of one; its status and words are in the events LaunchRejected",
		"quotas":               "no request answers them",
		"rate limits":          "finding them means to hit them",
		"limits of a request":  "how long user data, and how many entries metadata may be: ours are far below Nova's",
		"autoscaling of pools": "it is the user's; kubectl bizfly pool pin reads back what became of it",
		"package":              "whether max_nodes of the BKE package counts this node: only a full package shows it",
	})
}

func sorted(of []string) ([]string, error) {
	of = slices.Clone(of)
	slices.Sort(of)
	return of, nil
}
