// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var (
	ctx      = context.Background()
	content  *cloud.Catalog
	sandbox  *cloud.Sandbox
	provider *network.DefaultProvider
	lists    *cache.Cache
)

func TestNetwork(t *testing.T) { suite.Run(t, "Network") }

var _ = BeforeEach(func() {
	content, sandbox = cloud.DefaultCatalog(), nil
})

// start brings the cloud up. Without a cluster the controller knows no BKE.
func start(withCluster bool) {
	GinkgoHelper()
	startWith(func(config *catalog.Config) {
		if withCluster {
			config.BKEClusterID = sandbox.BKE().ClusterUID
		}
	})
}

func startWith(configure func(*catalog.Config)) *catalog.DefaultProvider {
	GinkgoHelper()
	sandbox = cloud.Start(cloud.Options{Catalog: content})
	DeferCleanup(sandbox.Close)
	client := connect.Client(ctx, sandbox)
	catalogProvider := connect.Catalog(ctx, client, configure)
	lists = cache.New(cache.NoExpiration, 0)
	provider = network.NewDefaultProvider(client, catalogProvider, lists, nil)
	return catalogProvider
}

func vpc(name string) *cloud.VPC {
	GinkgoHelper()
	i := slices.IndexFunc(content.VPCs[cloud.RegionHN], func(v cloud.VPC) bool { return v.Name == name })
	Expect(i).ToNot(Equal(-1))
	return &content.VPCs[cloud.RegionHN][i]
}

func firewall(name string) *cloud.Firewall {
	GinkgoHelper()
	i := slices.IndexFunc(content.Firewalls[cloud.RegionHN], func(f cloud.Firewall) bool { return f.Name == name })
	Expect(i).ToNot(Equal(-1))
	return &content.Firewalls[cloud.RegionHN][i]
}

func networks(terms ...v1alpha1.NetworkSelectorTerm) ([]network.Network, error) {
	return provider.Networks(ctx, &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{NetworkSelectorTerms: terms}})
}

func networkNames(terms ...v1alpha1.NetworkSelectorTerm) []string {
	GinkgoHelper()
	found := lo.Must(networks(terms...))
	return lo.Map(found, func(n network.Network, _ int) string { return n.Name })
}

func firewalls(terms ...v1alpha1.FirewallSelectorTerm) ([]v1alpha1.FirewallStatus, error) {
	return provider.Firewalls(ctx, &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{FirewallSelectorTerms: terms}})
}

func sshKey(name string) (string, error) {
	return provider.SSHKey(ctx, &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{SSHKeyName: name}})
}

func missOf(err error) *lookup.NotFoundError {
	GinkgoHelper()
	var miss *lookup.NotFoundError
	Expect(errors.As(err, &miss)).To(BeTrue(), "%v", err)
	return miss
}

func isMiss(err error) bool {
	var miss *lookup.NotFoundError
	return errors.As(err, &miss)
}

func reads(path string) int {
	return lo.CountBy(sandbox.Requests(), func(r cloud.Request) bool { return r.Method == http.MethodGet && r.Path == "/iaas-cloud/api"+path })
}

var _ = Describe("VPC networks", func() {
	Context("without terms", func() {
		It("should be the BKE cluster's own", func() {
			start(true)
			found, err := networks()
			Expect(err).ToNot(HaveOccurred())
			Expect(found).To(Equal([]network.Network{{ID: sandbox.BKE().NetworkID, Name: "kubernetes", Zones: []string{"HN1", "HN2"}}}))
		})
		It("should be the project's default one without BKE", func() {
			start(false)
			Expect(networkNames()).To(Equal([]string{"default-vpc"}))
		})
		It("should not be the default one while it could not be learned yet which cluster is ours", func() {
			learned := ""
			catalogProvider := startWith(func(config *catalog.Config) {
				config.LearnedBKEClusterID = func(context.Context) string { return learned }
			})
			_, err := networks()
			Expect(err).To(MatchError(catalog.ErrClusterUnknown))
			var miss *lookup.NotFoundError
			Expect(errors.As(err, &miss)).To(BeFalse(), "nothing is known to be missing")
			Expect(networkNames(v1alpha1.NetworkSelectorTerm{Name: "default-vpc"})).To(Equal([]string{"default-vpc"}))
			learned = sandbox.BKE().ClusterUID
			Expect(catalogProvider.Refresh(ctx)).To(Succeed())
			Expect(networks()).To(ConsistOf(HaveField("ID", sandbox.BKE().NetworkID)))
		})
		It("should know the default one by its tag where the API does not say is_default", func() {
			vpc("default-vpc").IsDefault = false
			start(false)
			Expect(networkNames()).To(Equal([]string{"default-vpc"}))
		})
		It("should say what to do when there is no default one", func() {
			vpc("default-vpc").IsDefault, vpc("default-vpc").Tags = false, nil
			start(false)
			_, err := networks()
			Expect(err).To(MatchError(And(HavePrefix("spec.networkSelectorTerms: "), ContainSubstring("name a network by id, name or tag"),
				ContainSubstring("one-zone"))))
		})
		It("should not call anything missing before the catalog was read", func() {
			empty := catalog.NewDefaultProvider(&bizfly.Client{}, clock.RealClock{}, catalog.Config{})
			unread := network.NewDefaultProvider(nil, empty, cache.New(cache.NoExpiration, 0), nil)
			Expect(unread.Networks(ctx, &v1alpha1.BizflyNodeClass{})).Error().To(MatchError(catalog.ErrNotReady))
		})
	})
	Context("by term", func() {
		It("should be found by id, name, tag and default, in the order of the terms and each once", func() {
			vpc("one-zone").Tags = []string{"karpenter", "small"}
			start(true)
			Expect(networkNames(
				v1alpha1.NetworkSelectorTerm{Name: "kubernetes"},
				v1alpha1.NetworkSelectorTerm{Tag: "karpenter"},
				v1alpha1.NetworkSelectorTerm{ID: vpc("tiny").ID},
				v1alpha1.NetworkSelectorTerm{Alias: "default"},
			)).To(Equal([]string{"kubernetes", "one-zone", "tiny", "default-vpc"}))
		})
		DescribeTable("should be one for each term, so that no network of others is another interface", func(term v1alpha1.NetworkSelectorTerm) {
			vpc("tiny").Tags, vpc("one-zone").Tags = []string{"karpenter"}, []string{"karpenter"}
			vpc("one-zone").Name = "tiny"
			start(true)
			_, err := networks(term)
			Expect(missOf(err).Several).To(HaveLen(2))
			Expect(err).To(MatchError(And(ContainSubstring("must match one, and matches several"), ContainSubstring(vpc("tiny").ID))))
			By("unless the NodeClass uses one of them already")
			nodeClass := &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{NetworkSelectorTerms: []v1alpha1.NetworkSelectorTerm{term}}}
			nodeClass.Status.Networks = []v1alpha1.NetworkStatus{{ID: vpc("tiny").ID}}
			Expect(provider.Networks(ctx, nodeClass)).To(ConsistOf(HaveField("ID", vpc("tiny").ID)))
		},
			Entry("by name", v1alpha1.NetworkSelectorTerm{Name: "tiny"}),
			Entry("by tag", v1alpha1.NetworkSelectorTerm{Tag: "karpenter"}),
			Entry("by both", v1alpha1.NetworkSelectorTerm{Name: "tiny", Tag: "karpenter"}),
		)
		It("should be limited to no zone where the API has not said what was requested", func() {
			vpc("tiny").AvailabilityZones, vpc("tiny").AvailabilityZoneHints = []string{"HN2"}, nil
			start(true)
			Expect(networks(v1alpha1.NetworkSelectorTerm{Name: "tiny"})).To(ConsistOf(HaveField("Zones", BeEmpty())))
		})
		It("should say in which zones they are, those that were only hinted at included", func() {
			vpc("tiny").AvailabilityZones = []string{"HN2"}
			vpc("tiny").AvailabilityZoneHints = []string{"HN1", "HN2"}
			start(true)
			found, err := networks(v1alpha1.NetworkSelectorTerm{Name: "tiny"}, v1alpha1.NetworkSelectorTerm{Name: "one-zone"})
			Expect(err).ToNot(HaveOccurred())
			Expect(found).To(HaveExactElements(HaveField("Zones", []string{"HN1", "HN2"}), HaveField("Zones", []string{"HN1"})))
		})
		It("should say which of them has an internet gateway", func() {
			vpc("tiny").InternetGateway = lo.ToPtr("")
			start(true)
			found, err := networks(v1alpha1.NetworkSelectorTerm{Name: "kubernetes"}, v1alpha1.NetworkSelectorTerm{Alias: "default"},
				v1alpha1.NetworkSelectorTerm{Name: "tiny"})
			Expect(err).ToNot(HaveOccurred())
			Expect(lo.Map(found, func(n network.Network, _ int) bool { return n.InternetGateway })).To(Equal([]bool{false, true, false}))
		})
		DescribeTable("should say what is missing", func(term v1alpha1.NetworkSelectorTerm, field, value string) {
			vpc("default-vpc").IsDefault, vpc("default-vpc").Tags = false, nil
			start(true)
			_, err := networks(v1alpha1.NetworkSelectorTerm{Name: "kubernetes"}, term)
			miss := missOf(err)
			Expect(miss.Field).To(Equal("spec.networkSelectorTerms[1]" + field))
			Expect(miss.Value).To(Equal(value))
			Expect(miss.Available).To(ContainElement(HavePrefix("kubernetes (")))
		},
			Entry("an id", v1alpha1.NetworkSelectorTerm{ID: "nope"}, ".id", "nope"),
			Entry("a name", v1alpha1.NetworkSelectorTerm{Name: "kuber"}, ".name", "kuber"),
			Entry("a tag", v1alpha1.NetworkSelectorTerm{Tag: "default-vpc-network"}, ".tag", "default-vpc-network"),
			Entry("a tag that the network of this name does not have", v1alpha1.NetworkSelectorTerm{Name: "kubernetes", Tag: "default-vpc-network"}, "",
				"kubernetes with tag default-vpc-network"),
			Entry("a default", v1alpha1.NetworkSelectorTerm{Alias: "default"}, ".alias", "default"),
			Entry("a term that selects nothing", v1alpha1.NetworkSelectorTerm{}, "", ""),
		)
	})
	It("should not be missing when they cannot be read", func() {
		start(true)
		sandbox.AddFaults(1, cloud.Fault{Path: "/vpc-networks", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		_, err := networks(v1alpha1.NetworkSelectorTerm{Name: "nope"})
		Expect(err).To(HaveOccurred())
		Expect(isMiss(err)).To(BeFalse())
	})
	It("should not be missing in an empty answer", func() {
		start(true)
		sandbox.AddFaults(1, cloud.Fault{Path: "/vpc-networks", Effect: cloud.EffectBody, Body: `[]`})
		_, err := networks(v1alpha1.NetworkSelectorTerm{Name: "tiny"})
		Expect(err).To(MatchError(ContainSubstring("the answer is empty, which cannot be true")))
		Expect(isMiss(err)).To(BeFalse())
	})
	It("should be read once while the list is cached", func() {
		start(true)
		for range 3 {
			Expect(networkNames(v1alpha1.NetworkSelectorTerm{Name: "tiny"})).To(HaveLen(1))
		}
		Expect(reads("/vpc-networks")).To(Equal(1))
	})
})

var _ = Describe("Firewalls", func() {
	BeforeEach(func() { start(true) })
	It("should be none, and not read, without terms", func() {
		Expect(firewalls()).To(BeEmpty())
		Expect(reads("/firewalls")).To(BeZero())
	})
	It("should be found by id and name, sorted by id and each once", func() {
		found, err := firewalls(
			v1alpha1.FirewallSelectorTerm{Name: "web"}, v1alpha1.FirewallSelectorTerm{Name: "kubernetes-nodes"}, v1alpha1.FirewallSelectorTerm{ID: firewall("web").ID})
		Expect(err).ToNot(HaveOccurred())
		Expect(found).To(ConsistOf(
			v1alpha1.FirewallStatus{ID: firewall("web").ID, Name: "web"}, v1alpha1.FirewallStatus{ID: firewall("kubernetes-nodes").ID, Name: "kubernetes-nodes"}))
		Expect(slices.IsSortedFunc(found, func(a, b v1alpha1.FirewallStatus) int { return lo.Ternary(a.ID < b.ID, -1, 1) })).To(BeTrue())
	})
	DescribeTable("should say what is missing, even when another term is found", func(term v1alpha1.FirewallSelectorTerm, message string) {
		_, err := firewalls(v1alpha1.FirewallSelectorTerm{Name: "web"}, term)
		Expect(missOf(err).Error()).To(HavePrefix(message))
		Expect(missOf(err).Available).To(HaveLen(3))
	},
		Entry("an id", v1alpha1.FirewallSelectorTerm{ID: "nope"}, `spec.firewallSelectorTerms[1].id: nothing matches "nope"; available: [default (`),
		Entry("a name", v1alpha1.FirewallSelectorTerm{Name: "Web"}, `spec.firewallSelectorTerms[1].name: nothing matches "Web"; available: [default (`),
	)
	It("should not be missing when they cannot be read", func() {
		sandbox.AddFaults(1, cloud.Fault{Path: "/firewalls", Effect: cloud.EffectHTML, Status: http.StatusNotFound})
		_, err := firewalls(v1alpha1.FirewallSelectorTerm{Name: "web"})
		Expect(err).To(HaveOccurred())
		Expect(isMiss(err)).To(BeFalse())
	})
})

var _ = Describe("The SSH key", func() {
	It("should be none, and not read, without terms", func() {
		start(true)
		Expect(sshKey("")).To(BeEmpty())
		Expect(reads("/keypairs")).To(BeZero())
	})
	It("should be found by name", func() {
		start(true)
		Expect(sshKey("karpenter")).To(Equal("karpenter"))
	})
	It("should say which keys there are when it is missing", func() {
		start(true)
		name, err := sshKey("laptop")
		Expect(name).To(BeEmpty())
		Expect(missOf(err).Error()).To(HavePrefix(`spec.sshKeyName: nothing matches "laptop"; available: [karpenter ops]`))
	})
})

var _ = Describe("What a NodeClass has resolved to", func() {
	var (
		nodeClass *v1alpha1.BizflyNodeClass
		answers   = map[string]string{"/vpc-networks": `[{"id":"%s","name":"tiny"}]`, "/firewalls": `[{"id":"%s","name":"web"}]`,
			"/keypairs": `[{"keypair":{"name":"%s"}}]`}
	)
	BeforeEach(func() {
		start(true)
		nodeClass = &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{
			NetworkSelectorTerms:  []v1alpha1.NetworkSelectorTerm{{Name: "tiny"}},
			FirewallSelectorTerms: []v1alpha1.FirewallSelectorTerm{{Name: "web"}},
			SSHKeyName:            "karpenter",
		}}
		nodeClass.Generation = 7
		nodeClass.Status.Networks = []v1alpha1.NetworkStatus{{ID: "used"}}
		nodeClass.Status.Firewalls = []v1alpha1.FirewallStatus{{ID: "used"}}
		nodeClass.Status.SSHKeyName = "karpenter"
		for _, of := range []string{v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady, v1alpha1.ConditionTypeSSHKeyReady} {
			nodeClass.Status.Conditions = append(nodeClass.Status.Conditions, status.Condition{Type: of, Status: metav1.ConditionTrue, ObservedGeneration: 7})
		}
	})
	resolve := map[string]func() error{
		"/vpc-networks": func() error { _, err := provider.Networks(ctx, nodeClass); return err },
		"/firewalls":    func() error { _, err := provider.Firewalls(ctx, nodeClass); return err },
		"/keypairs":     func() error { _, err := provider.SSHKey(ctx, nodeClass); return err },
	}
	// read lets the cloud answer with one thing of this id, or name, and resolves by a list that is read for it.
	read := func(path, id string) error {
		GinkgoHelper()
		sandbox.ClearFaults()
		sandbox.AddFaults(1, cloud.Fault{Path: path, Effect: cloud.EffectBody, Body: fmt.Sprintf(answers[path], id)})
		lists.Flush()
		return resolve[path]()
	}
	for _, path := range []string{"/vpc-networks", "/firewalls", "/keypairs"} {
		It("should be what the last list has: "+path, func() {
			err := read(path, "another")
			Expect(err == nil || isMiss(err)).To(BeTrue(), "%v", err)
		})

	}
})
