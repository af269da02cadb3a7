// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var (
	ctx       = context.Background()
	content   *cloud.Catalog
	options   cloud.Options
	sandbox   *cloud.Sandbox
	listCache *cache.Cache
	provider  *image.DefaultProvider
)

func TestImage(t *testing.T) { suite.Run(t, "Image") }

var _ = BeforeEach(func() {
	content = cloud.DefaultCatalog()
	options = cloud.Options{Catalog: content}
	listCache = cache.New(cache.NoExpiration, 0)
	sandbox = nil
})

// start brings the cloud up as options describe it. Without a cluster the controller knows no BKE.
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
	sandbox = cloud.Start(options)
	DeferCleanup(sandbox.Close)
	client := connect.Client(ctx, sandbox)
	catalogProvider := connect.Catalog(ctx, client, configure)
	provider = image.NewDefaultProvider(client, catalogProvider, listCache)
	return catalogProvider
}

func resolve(terms ...v1alpha1.ImageSelectorTerm) (*image.Image, error) {
	return provider.Resolve(ctx, &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{ImageSelectorTerms: terms}})
}

func missOf(err error) *lookup.NotFoundError {
	GinkgoHelper()
	var miss *lookup.NotFoundError
	Expect(errors.As(err, &miss)).To(BeTrue(), "%v", err)
	return miss
}

func alias(alias string) v1alpha1.ImageSelectorTerm { return v1alpha1.ImageSelectorTerm{Alias: alias} }

func workerImage(version string) string {
	GinkgoHelper()
	found, ok := lo.Find(content.Versions, func(v cloud.KubernetesVersion) bool { return v.KubernetesVersion == version })
	Expect(ok).To(BeTrue())
	return found.WorkerImageID
}

func fail(path string) {
	sandbox.AddFaults(1, cloud.Fault{Path: path, Effect: cloud.EffectStatus, Status: http.StatusInternalServerError, Message: "down"})
}

var _ = Describe("BKE aliases", func() {
	DescribeTable("should select", func(controlPlane string, term v1alpha1.ImageSelectorTerm, version, name, kubernetesVersion string) {
		options.Version = controlPlane
		start(true)
		found := lo.Must(resolve(term))
		Expect(*found).To(Equal(image.Image{ID: workerImage(version), Name: name, KubernetesVersion: kubernetesVersion, Type: v1alpha1.ImageTypeImage,
			Flatcar: strings.HasSuffix(version, ".flatcar")}))
	},
		Entry("the control plane's own version", "v1.35.4", alias("bke@latest"), "v1.35.4", "bke v1.35.4 ubuntu", "v1.35.4"),
		Entry("the family that the cluster itself has", "v1.35.4.flatcar", alias("bke@latest"), "v1.35.4.flatcar", "bke v1.35.4 flatcar", "v1.35.4"),
		Entry("another family than the cluster's", "v1.35.4.flatcar", alias("bke-ubuntu@latest"), "v1.35.4", "bke v1.35.4 ubuntu", "v1.35.4"),
		Entry("its Flatcar image", "v1.35.4", alias("bke-flatcar@latest"), "v1.35.4.flatcar", "bke v1.35.4 flatcar", "v1.35.4"),
		Entry("the newest older patch where the own one has no image for the OS", "v1.34.9", alias("bke-flatcar@latest"),
			"v1.34.6.flatcar", "bke v1.34.6 flatcar", "v1.34.6"),
		Entry("no patch above the control plane", "v1.35.5", alias("bke@latest"), "v1.35.4", "bke v1.35.4 ubuntu", "v1.35.4"),
		Entry("the newest patch of an older minor version", "v1.35.4", alias("bke@v1.33"), "v1.33.9", "bke v1.33.9 ubuntu", "v1.33.9"),
		Entry("no patch above the control plane for a pinned minor version", "v1.33.5", alias("bke@v1.33"), "v1.33.5", "bke v1.33.5 ubuntu", "v1.33.5"),
		Entry("exactly a pinned patch", "v1.35.4", alias("bke@v1.33.5"), "v1.33.5", "bke v1.33.5 ubuntu", "v1.33.5"),
		Entry("a pinned patch above the control plane's of the same minor version", "v1.35.4", alias("bke@v1.35.6"), "v1.35.6", "bke v1.35.6 ubuntu", "v1.35.6"),
		Entry("a pinned patch for Flatcar", "v1.35.4", alias("bke-flatcar@v1.34.6"), "v1.34.6.flatcar", "bke v1.34.6 flatcar", "v1.34.6"),
	)
	DescribeTable("should not select", func(controlPlane string, term v1alpha1.ImageSelectorTerm, value, remedy string) {
		options.Version = controlPlane
		start(true)
		_, err := resolve(term)
		miss := missOf(err)
		Expect(miss.Field).To(Equal("spec.imageSelectorTerms[0].alias"))
		Expect(miss.Value).To(Equal(value))
		Expect(miss.Available).To(And(ContainElement("bke-ubuntu@v1.33.5"), Not(ContainElement(ContainSubstring("@v1.35.1")))))
		Expect(err).To(MatchError(ContainSubstring(remedy)))
	},
		Entry("a version without an image", "v1.35.1", alias("bke@latest"), "bke@latest", "runs v1.35.1"),
		Entry("a pinned version without an image", "v1.35.4", alias("bke@v1.35.1"), "bke@v1.35.1", "runs v1.35.4"),
		Entry("a minor version above the control plane", "v1.35.4", alias("bke@v1.36"), "bke@v1.36", "nodes must not be newer"),
		Entry("a patch of a minor version above the control plane", "v1.35.4", alias("bke@v1.36.0"), "bke@v1.36.0", "nodes must not be newer"),
		Entry("an OS that the version is not built for", "v1.35.4", alias("bke-flatcar@v1.33"), "bke-flatcar@v1.33", "runs v1.35.4"),
		Entry("an unknown version", "v1.35.4", alias("bke@v1.12"), "bke@v1.12", "runs v1.35.4"),
	)
	It("should say what a cluster that does not name its version needs", func() {
		options.Version = "stable"
		start(true)
		_, err := resolve(alias("bke@latest"))
		Expect(missOf(err).Remedy).To(ContainSubstring("pin one, for example bke@v1.33"))
		Expect(resolve(alias("bke@v1.33"))).To(HaveField("KubernetesVersion", "v1.33.9"))
	})
	It("should say that an alias needs a BKE cluster", func() {
		start(false)
		_, err := resolve(alias("bke@latest"))
		Expect(missOf(err).Remedy).To(ContainSubstring("set BKE_CLUSTER_ID"))
	})
	It("should call no alias missing, and try no other term, before the cluster is known", func() {
		learned := ""
		catalogProvider := startWith(func(config *catalog.Config) {
			config.LearnedBKEClusterID = func(context.Context) string { return learned }
		})
		_, err := resolve(alias("bke@latest"), v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Ubuntu", Version: "22.04 x64"}})
		Expect(err).To(MatchError(catalog.ErrClusterUnknown))
		var miss *lookup.NotFoundError
		Expect(errors.As(err, &miss)).To(BeFalse(), "nodes would be replaced by ones of the next term's image")
		learned = sandbox.BKE().ClusterUID
		Expect(catalogProvider.Refresh(ctx)).To(Succeed())
		Expect(resolve(alias("bke@latest"))).ToNot(BeNil())
	})
	It("should answer alike whatever the order of two builds of one version", func() {
		for _, id := range []string{"build-a", "build-b"} {
			content.Versions = append(content.Versions,
				cloud.KubernetesVersion{ID: id, Name: "v1.32.1-" + id, KubernetesVersion: "v1.32.1", WorkerImageID: "image-of-" + id})
		}
		start(true)
		first := lo.Must(resolve(alias("bke@v1.32")))
		Expect(first.ID).To(Equal("image-of-build-b"))
		sandbox.Close()
		slices.Reverse(content.Versions)
		start(true)
		Expect(resolve(alias("bke@v1.32"))).To(Equal(first))
	})
	Describe("that have been resolved", func() {
		const newest, older = "v1.35.4", "v1.35.2"
		var (
			nodeClass *v1alpha1.BizflyNodeClass
			snapshots *catalog.DefaultProvider
		)
		// read reads the catalog as it is after the change and resolves, and writes down what was found.
		read := func(change func(*cloud.Catalog)) (*image.Image, error) {
			GinkgoHelper()
			sandbox.Edit(change)
			Expect(snapshots.Refresh(ctx)).To(Succeed())
			found, err := provider.Resolve(ctx, nodeClass)
			if err == nil {
				nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: found.ID, Name: found.Name, Type: found.Type}}
				nodeClass.Status.KubernetesVersion = found.KubernetesVersion
				nodeClass.Status.Conditions = resolved
			}
			return found, err
		}
		imageOf := func(version, id string) func(*cloud.Catalog) {
			return func(c *cloud.Catalog) {
				for i := range c.Versions {
					if c.Versions[i].KubernetesVersion == version {
						c.Versions[i].WorkerImageID = id
					}
				}
			}
		}
		unchanged := func(*cloud.Catalog) {}
		var own string
		BeforeEach(func() {
			imageOf(older, "older-image")(content)
			options.Version = newest
			snapshots = startWith(func(config *catalog.Config) { config.BKEClusterID = sandbox.BKE().ClusterUID })
			own = workerImage(newest)
			nodeClass = &v1alpha1.BizflyNodeClass{}
			nodeClass.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{alias("bke@latest")}
			Expect(read(unchanged)).To(HaveField("ID", own))
		})
		// keeps expects that the image of the NodeClass stays in use.
		keeps := func(_ *image.Image, err error) {
			GinkgoHelper()
			Expect(err).To(MatchError(And(ContainSubstring(own), ContainSubstring("stays in use until 3 reads in a row agree"))))
			Expect(lookup.IsNotFound(err)).To(BeFalse())
		}
		It("should not follow a version whose image is missing for a moment to an older one", func() {
			for range 2 {
				for range 2 {
					keeps(read(imageOf(newest, "")))
				}
				Expect(read(imageOf(newest, own))).To(HaveField("ID", own), "reads count in a row only")
			}
		})
		It("should not follow a wrong answer to an older version of the control plane", func() {
			snapshot := lo.Must(snapshots.Snapshot())
			cluster := *snapshot.Cluster
			cluster.Version.K8SVersion = older
			answer := string(lo.Must(json.Marshal(cluster)))
			for range 2 {
				sandbox.AddFaults(1, cloud.Fault{Path: "/api/kubernetes-engine/_/*", Effect: cloud.EffectBody, Body: answer})
				keeps(read(unchanged))
			}
			sandbox.ClearFaults()
			Expect(read(unchanged)).To(HaveField("ID", own))
		})
		It("should not follow an answer without the version of the control plane", func() {
			nodeClass.Spec.ImageSelectorTerms[0].Alias = "bke@v1.35"
			snapshot := lo.Must(snapshots.Snapshot())
			cluster := *snapshot.Cluster
			cluster.Version.K8SVersion = ""
			sandbox.AddFaults(1, cloud.Fault{Path: "/api/kubernetes-engine/_/*", Effect: cloud.EffectBody, Body: string(lo.Must(json.Marshal(cluster)))})
			failed := snapshots.Refresh(ctx)
			Expect(provider.Resolve(ctx, nodeClass)).To(HaveField("ID", own), "v1.35.6 is newer than the control plane")
			Expect(failed).To(MatchError(ContainSubstring("without its version")))

			By("nor after a restart")
			client := connect.Client(ctx, sandbox)
			restarted := catalog.NewDefaultProvider(client, clock.RealClock{}, catalog.Config{BKEClusterID: cluster.UID})
			Expect(restarted.Refresh(ctx)).NotTo(Succeed())
			Expect(image.NewDefaultProvider(client, restarted, listCache).Resolve(ctx, nodeClass)).Error().To(MatchError(catalog.ErrClusterUnknown))
		})
		It("should count reads of the catalog, and not how often it is asked", func() {
			keeps(read(imageOf(newest, "")))
			for range 10 {
				keeps(provider.Resolve(ctx, nodeClass))
			}
		})
		It("should count reads of the catalog for the id of a worker image, and no other list", func() {
			nodeClass.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{ID: own}, {Name: "golden-node"}}
			Expect(read(unchanged)).To(HaveField("ID", own))
			keeps(read(imageOf(newest, "")))
			for range 3 {
				listCache.Flush()
				keeps(provider.Resolve(ctx, nodeClass))
			}
		})
		It("should follow once several reads in a row agree", func() {
			for range 2 {
				keeps(read(imageOf(newest, "")))
			}
			Expect(read(unchanged)).To(HaveField("ID", "older-image"))
		})
		It("should not be missing before several reads in a row agree", func() {
			none := func(c *cloud.Catalog) { imageOf(newest, "")(c); imageOf(older, "")(c) }
			for range 2 {
				keeps(read(none))
			}
			_, err := read(none)
			Expect(missOf(err).Value).To(Equal("bke@latest"))
		})
		It("should follow too while another part of the catalog cannot be read", func() {
			fail("/regions")
			sandbox.Edit(imageOf(newest, ""))
			for range 2 {
				Expect(snapshots.Refresh(ctx)).NotTo(Succeed())
				keeps(provider.Resolve(ctx, nodeClass))
			}
			Expect(snapshots.Refresh(ctx)).NotTo(Succeed())
			Expect(provider.Resolve(ctx, nodeClass)).To(HaveField("ID", "older-image"))
		})
		It("should not count reads of the catalog that the Kubernetes Engine did not answer", func() {
			keeps(read(imageOf(newest, "")))
			fail("/api/kubernetes-engine/_/*")
			for range 5 {
				Expect(snapshots.Refresh(ctx)).NotTo(Succeed())
				keeps(provider.Resolve(ctx, nodeClass))
			}
		})
		It("should follow a newer version at once", func() {
			nodeClass.Status.Images[0].ID, nodeClass.Status.Images[0].Name, nodeClass.Status.KubernetesVersion = "older-image", "bke v1.35.2 ubuntu", older
			Expect(read(unchanged)).To(HaveField("ID", own))
		})
		It("should follow at once to what another alias selects", func() {
			nodeClass.Spec.ImageSelectorTerms[0].Alias = "bke@v1.33.5"
			nodeClass.Generation++
			Expect(read(unchanged)).To(HaveField("KubernetesVersion", "v1.33.5"))
		})
	})
	It("should not be misled by a version that is none, or of another operating system", func() {
		for _, version := range []string{"nightly", "v1.35.4.rocky"} {
			content.Versions = append(content.Versions, cloud.KubernetesVersion{
				ID: version, Name: version, KubernetesVersion: version, WorkerImageID: version})
		}
		options.Version = "v1.35.5" // without an image
		start(true)
		Expect(resolve(alias("bke@latest"))).To(HaveField("ID", workerImage("v1.35.4")))
	})
	It("should not call a worker image's id missing before the Kubernetes Engine answers", func() {
		sandbox = cloud.Start(options)
		fail("/api/kubernetes-engine/**")
		client := connect.Client(ctx, sandbox)
		snapshots := catalog.NewDefaultProvider(client, clock.RealClock{}, catalog.Config{BKEClusterID: sandbox.BKE().ClusterUID})
		Expect(snapshots.Refresh(ctx)).NotTo(Succeed())
		provider = image.NewDefaultProvider(client, snapshots, listCache)
		byID := v1alpha1.ImageSelectorTerm{ID: workerImage("v1.35.4")}
		Expect(resolve(byID)).Error().To(MatchError(catalog.ErrClusterUnknown))
		sandbox.ClearFaults()
		Expect(snapshots.Refresh(ctx)).To(Succeed())
		Expect(resolve(byID)).To(HaveField("KubernetesVersion", "v1.35.4"))
	})
	It("should not call an image missing before the catalog was read", func() {
		start(true)
		unread := image.NewDefaultProvider(nil, catalog.NewDefaultProvider(&bizfly.Client{}, clock.RealClock{}, catalog.Config{}), listCache)
		_, err := unread.Resolve(ctx,
			&v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{ImageSelectorTerms: []v1alpha1.ImageSelectorTerm{alias("bke@latest")}}})
		Expect(err).To(MatchError(catalog.ErrNotReady))
	})
})

// resolved are the conditions of a NodeClass whose image was found for its first generation, which is none.
var resolved = []status.Condition{{Type: v1alpha1.ConditionTypeImagesReady, Status: metav1.ConditionTrue}}

var _ = Describe("Other images", func() {
	ubuntu := func() cloud.ImageVersion { return content.Images[cloud.RegionHN][0].Versions[2] }
	golden := func(name, status, createdAt string) cloud.CustomImage {
		made := content.CustomImages[cloud.RegionHN][0]
		made.ID, made.Name, made.Status, made.CreatedAt = "id-of-"+name+"-"+createdAt, name, status, createdAt
		return made
	}

	Context("that have been resolved", func() {
		const item = `{"id":"%s","name":"%s","status":"%s","created_at":"2026-0%s-01T00:00:00Z","size":1,"min_disk":0}`
		var (
			first   = fmt.Sprintf(item, "id-1", "golden-1", "active", "1")
			second  = fmt.Sprintf(item, "id-2", "golden-2", "active", "2")
			saving  = fmt.Sprintf(item, "id-2", "golden-2", "saving", "2")
			undated = strings.Replace(second, `"created_at":"2026-02-01T00:00:00Z",`, "", 1)
			third   = fmt.Sprintf(item, "id-3", "golden-3", "active", "3")
		)
		var nodeClass *v1alpha1.BizflyNodeClass
		// read resolves by a list that is read for it and has these images, and writes down what was found.
		read := func(images ...string) (string, error) {
			GinkgoHelper()
			sandbox.ClearFaults()
			listCache.Flush()
			sandbox.AddFaults(1, cloud.Fault{Path: "/user/images", Effect: cloud.EffectBody, Body: `{"images":[` + strings.Join(images, ",") + `]}`})
			found, err := provider.Resolve(ctx, nodeClass)
			if err != nil {
				return "", err
			}
			nodeClass.Status.Images, nodeClass.Status.Conditions = []v1alpha1.ImageStatus{{ID: found.ID, Name: found.Name}}, resolved
			return found.ID, nil
		}
		keeps := func(_ string, err error) {
			GinkgoHelper()
			Expect(err).To(MatchError(ContainSubstring("stays in use until 3 reads in a row agree")))
			Expect(lookup.IsNotFound(err)).To(BeFalse())
		}
		terms := map[string][]v1alpha1.ImageSelectorTerm{
			"of one term": {{Name: "golden-*"}}, "of several terms": {{Name: "golden-3"}, {ID: "id-2"}, {Name: "golden-1"}},
		}
		BeforeEach(func() {
			start(true)
			nodeClass = &v1alpha1.BizflyNodeClass{}
		})
		It("should not be replaced by an older one because the list before still has it", func() {
			nodeClass.Spec.ImageSelectorTerms = terms["of several terms"]
			Expect(read(second, first)).To(Equal("id-2"))
			sandbox.ClearFaults()
			sandbox.AddFaults(1, cloud.Fault{Path: "/user/images", Effect: cloud.EffectBody,
				Body: `{"images":[` + first + `]}`})
			found, err := provider.Resolve(ctx, nodeClass)
			keeps(lo.FromPtr(found).ID, err)
		})
		It("should not be replaced by an older one because something else of the NodeClass is edited meanwhile", func() {
			nodeClass.Spec.ImageSelectorTerms = terms["of one term"]
			Expect(read(second, first)).To(Equal("id-2"))
			nodeClass.Spec.Zones = []string{"HN1"}
			for range 2 {
				nodeClass.Generation++
				keeps(read(first))
			}
			nodeClass.Generation++
			Expect(read(first)).To(Equal("id-1"), "three reads agree")

			By("also after a restart, where it was looked for before the edit")
			client := connect.Client(ctx, sandbox)
			provider = image.NewDefaultProvider(client, connect.Catalog(ctx, client), listCache)
			nodeClass.Generation, nodeClass.Status.Images[0].ID = 0, "id-2"
			Expect(read(second, first)).To(Equal("id-2"))
			nodeClass.Generation++
			keeps(read(first))
		})
		It("should be what other terms select at once, also where the status could not be written", func() {
			nodeClass.Spec.ImageSelectorTerms = terms["of one term"]
			Expect(read(second, first)).To(Equal("id-2"))
			nodeClass.Generation++
			nodeClass.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{Name: "golden-1"}}
			for range 2 {
				before := nodeClass.Status.DeepCopy()
				Expect(read(first)).To(Equal("id-1"))
				nodeClass.Status = *before
			}
		})
		It("should be what is made under a name that nothing had before", func() {
			nodeClass.Spec.ImageSelectorTerms = terms["of one term"]
			_, err := read()
			Expect(lookup.IsNotFound(err)).To(BeTrue())
			Expect(read(first)).To(Equal("id-1"))
		})
		It("should be looked for in a new list once one has lacked it, whatever else is read", func() {
			nodeClass.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{
				{OS: &v1alpha1.OSImageSelector{Distribution: "Ubuntu", Version: "30.04"}}, {Name: "golden-*"}}
			Expect(read(second, first)).To(Equal("id-2"))
			keeps(read(first))
			sandbox.ClearFaults()
			sandbox.AddFaults(1, cloud.Fault{Path: "/user/images", Effect: cloud.EffectBody,
				Body: `{"images":[` + second + `,` + first + `]}`})
			for range 2 {
				listCache.Delete("OS images") // which has no such version, and is read again
				Expect(provider.Resolve(ctx, nodeClass)).To(HaveField("ID", "id-2"))
			}
		})
		It("should not be replaced because it is looked for several times within seconds", func() {
			nodeClass.Spec.ImageSelectorTerms = terms["of one term"]
			Expect(read(second, first)).To(Equal("id-2"))
			keeps(read(first))
			sandbox.AddFaults(5, cloud.Fault{Path: "/user/images", Effect: cloud.EffectBody, Body: `{"images":[` + first + `]}`})
			for range 5 {
				found, err := provider.Resolve(ctx, nodeClass)
				keeps(lo.FromPtr(found).ID, err)
			}
		})
		for title, of := range terms {
			It("should not be replaced by an older one, or lost, before three reads in a row agree: "+title, func() {
				nodeClass.Spec.ImageSelectorTerms = of
				Expect(read(second, first)).To(Equal("id-2"))
				keeps(read(first))
				keeps(read(first))
				Expect(read(second, first)).To(Equal("id-2"), "reads count in a row only")
				if title == "of one term" {
					keeps(read(undated, first))
				}
				keeps(read(saving, first))
				keeps(read(saving))
				keeps(read())
				keeps(read(first))
				keeps(read(first))
				Expect(read(first)).To(Equal("id-1"))
				keeps(read())
				keeps(read())
				_, err := read()
				Expect(lookup.IsNotFound(err)).To(BeTrue())
			})
			It("should be replaced by a newer one at once: "+title, func() {
				nodeClass.Spec.ImageSelectorTerms = of
				Expect(read(second, first)).To(Equal("id-2"))
				Expect(read(third, second, first)).To(Equal("id-3"))
			})
		}
	})
	It("should not be missing in an empty answer, and not be another one's", func() {
		start(true)
		sandbox.AddFaults(1, cloud.Fault{Path: "/images", Effect: cloud.EffectBody, Body: `{"os_images":[]}`})
		_, err := resolve(v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Ubuntu", Version: "22.04 x64"}})
		Expect(err).To(MatchError(ContainSubstring("the answer is empty, which cannot be true")))
		Expect(lookup.IsNotFound(err)).To(BeFalse())
	})
	Context("by operating system", func() {
		It("should ignore letter case", func() {
			start(true)
			Expect(resolve(v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "UBUNTU", Version: "24.04 X64"}})).
				To(HaveValue(Equal(image.Image{ID: ubuntu().ID, Name: "Ubuntu 24.04 x64", Type: v1alpha1.ImageTypeImage, PublicOS: true})))
		})
		It("should list the versions of the distribution when the version is unknown", func() {
			start(true)
			_, err := resolve(v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Ubuntu", Version: "18.04"}})
			Expect(err).To(MatchError(`spec.imageSelectorTerms[0].os: nothing matches "Ubuntu 18.04"; available: [Ubuntu 20.04 x64 Ubuntu 22.04 x64 Ubuntu 24.04 x64]`))
		})
		It("should list all images when the distribution is unknown", func() {
			start(true)
			_, err := resolve(v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Arch", Version: "1"}})
			Expect(missOf(err).Available).To(ContainElements("Debian 12 x64", "AlmaLinux 9 x64"))
		})
	})
	Context("by name", func() {
		It("should take the newest active custom image", func() {
			content.CustomImages[cloud.RegionHN] = []cloud.CustomImage{
				golden("node", "active", "2024-01-01T00:00:00Z"),
				golden("node", "active", "2025-01-01T00:00:00Z"),
				golden("node", "queued", "2026-01-01T00:00:00Z"),
				golden("other", "active", "2026-01-01T00:00:00Z"),
			}
			start(true)
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "node"})).To(HaveValue(Equal(image.Image{
				ID: "id-of-node-2025-01-01T00:00:00Z", Name: "node", Type: v1alpha1.ImageTypeImage, MinDiskGiB: 5})))
		})
		It("should take the newest of a glob, whatever letter case, order and age of the others", func() {
			content.CustomImages[cloud.RegionHN] = []cloud.CustomImage{
				golden("worker-1", "active", "2024-01-01T00:00:00Z"),
				golden("worker-3", "active", "2025-03-01T00:00:00Z"),
				golden("worker-2", "active", "2025-02-01T00:00:00Z"),
				golden("worker-4", "saving", "2026-01-01T00:00:00Z"),
				golden("Worker-5", "active", "2026-01-01T00:00:00Z"),
				golden("my-worker-6", "active", "2026-01-01T00:00:00Z"),
			}
			start(true)
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "worker-*"})).To(HaveField("Name", "worker-3"))
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "*"})).To(HaveField("Name", "my-worker-6"), "of the same age, ids decide")
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "*work*-1"})).To(HaveField("Name", "worker-1"))
			_, err := resolve(v1alpha1.ImageSelectorTerm{Name: "worker-?"})
			Expect(missOf(err).Value).To(Equal("worker-?"), "a question mark stands for itself")
		})
		It("should follow a newer one once the list is read again", func() {
			start(true)
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-*"})).To(HaveField("Name", "golden-node"))
			sandbox.Edit(func(c *cloud.Catalog) {
				c.CustomImages[cloud.RegionHN] = append(c.CustomImages[cloud.RegionHN], golden("golden-node-2", "active", "2026-01-01T00:00:00Z"))
			})
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-*"})).To(HaveField("Name", "golden-node"))
			listCache.Flush()
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-*"})).To(HaveField("Name", "golden-node-2"))
		})
		DescribeTable("should say how much disk it needs", func(edit func(*cloud.CustomImage), expected int) {
			edit(&content.CustomImages[cloud.RegionHN][0])
			start(true)
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node"})).To(HaveField("MinDiskGiB", expected))
		},
			Entry("as its maker says", func(i *cloud.CustomImage) { i.MinDisk = 30 }, 30),
			Entry("at least what it holds", func(i *cloud.CustomImage) { i.MinDisk, i.VirtualSize = 1, lo.ToPtr(50<<30+1) }, 51),
			Entry("not at all where the cloud does not say", func(i *cloud.CustomImage) { i.Size = nil }, 0),
		)
		It("should find an image that was made after the list was cached", func() {
			start(true)
			sandbox.AddFaults(1, cloud.Fault{Path: "/user/images", Effect: cloud.EffectBody, Body: `{"images":[]}`, Count: 1})
			_, err := resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node"})
			Expect(lookup.IsNotFound(err)).To(BeTrue())
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node"})).To(HaveField("Name", "golden-node"))
		})
		It("should name the active ones when there is none", func() {
			start(true)
			_, err := resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node-next"})
			miss := missOf(err)
			Expect(miss.Field).To(Equal("spec.imageSelectorTerms[0].name"))
			Expect(miss.Available).To(Equal([]string{"golden-node"}))
		})
	})
	Context("by snapshot", func() {
		BeforeEach(func() { start(true) })
		snapshot := func(id, name, status, createdAt string) cloud.Snapshot {
			made := content.Snapshots[cloud.RegionHN][0]
			made.ID, made.Name, made.Status, made.CreatedAt = id, name, status, createdAt
			return made
		}
		byName := func(name string) v1alpha1.ImageSelectorTerm {
			return v1alpha1.ImageSelectorTerm{Snapshot: &v1alpha1.SnapshotSelector{Name: name}}
		}
		byID := func(id string) v1alpha1.ImageSelectorTerm {
			return v1alpha1.ImageSelectorTerm{Snapshot: &v1alpha1.SnapshotSelector{ID: id}}
		}
		BeforeEach(func() {
			content.Snapshots[cloud.RegionHN] = []cloud.Snapshot{
				snapshot("s-1", "golden-1", "available", "2025-01-01T00:00:00.000000"),
				snapshot("s-2", "golden-2", "available", "2025-06-01T00:00:00.000000"),
				snapshot("s-3", "golden-3", "creating", "2026-01-01T00:00:00.000000"),
				snapshot("s-4", "database", "available", "2026-01-01T00:00:00.000000"),
			}
			content.Snapshots[cloud.RegionHN][1].Size = 60
		})
		It("should find one by its id", func() {
			Expect(resolve(byID("s-1"))).To(HaveValue(Equal(image.Image{ID: "s-1", Name: "golden-1", Type: v1alpha1.ImageTypeSnapshot, MinDiskGiB: 20})))
		})
		It("should take the newest available one of a name", func() {
			Expect(resolve(byName("golden-*"))).To(HaveValue(Equal(image.Image{ID: "s-2", Name: "golden-2", Type: v1alpha1.ImageTypeSnapshot, MinDiskGiB: 60})))
			Expect(resolve(byName("golden-1"))).To(HaveField("ID", "s-1"))
		})
		DescribeTable("should say what there is when there is none", func(term v1alpha1.ImageSelectorTerm, field, value, available, remedy string) {
			_, err := resolve(term)
			miss := missOf(err)
			Expect(miss.Field).To(Equal("spec.imageSelectorTerms[0].snapshot" + field))
			Expect(miss.Value).To(Equal(value))
			Expect(miss.Available).To(And(HaveLen(3), ContainElement(available)))
			Expect(miss.Remedy).To(ContainSubstring(remedy))
		},
			Entry("of the id", byID("nope"), ".id", "nope", "s-4 (database)", ""),
			Entry("of the id yet", byID("s-3"), ".id", "s-3", "s-4 (database)", "is creating; wait until it is available"),
			Entry("of the name", byName("silver-*"), ".name", "silver-*", "database", "available volume snapshots"),
			Entry("of the name yet", byName("golden-3"), ".name", "golden-3", "golden-1", "available volume snapshots"),
		)
		It("should not be missing while the list cannot be read", func() {
			fail("/snapshots")
			_, err := resolve(byName("golden-*"))
			Expect(err).To(MatchError(ContainSubstring("spec.imageSelectorTerms[0].snapshot.name")))
			Expect(errors.As(err, lo.ToPtr((*lookup.NotFoundError)(nil)))).To(BeFalse())
		})
		It("should read the list once while it is cached", func() {
			for range 3 {
				Expect(resolve(byName("golden-*"))).ToNot(BeNil())
			}
			Expect(lo.CountBy(sandbox.Requests(), func(r cloud.Request) bool { return r.Path == "/iaas-cloud/api/snapshots" })).To(Equal(1))
		})
	})
	Context("by id", func() {
		BeforeEach(func() { start(true) })
		It("should find a BKE worker image and its version", func() {
			Expect(resolve(v1alpha1.ImageSelectorTerm{ID: workerImage("v1.34.6.flatcar")})).To(HaveValue(Equal(
				image.Image{ID: workerImage("v1.34.6.flatcar"), Name: "bke v1.34.6 flatcar", KubernetesVersion: "v1.34.6", Type: v1alpha1.ImageTypeImage, Flatcar: true})))
		})
		It("should find a public image", func() {
			Expect(resolve(v1alpha1.ImageSelectorTerm{ID: ubuntu().ID})).To(HaveField("Name", "Ubuntu 24.04 x64"))
		})
		It("should find a custom image", func() {
			Expect(resolve(v1alpha1.ImageSelectorTerm{ID: content.CustomImages[cloud.RegionHN][0].ID})).To(HaveField("Name", "golden-node"))
		})
		It("should say that an image is not active yet", func() {
			_, err := resolve(v1alpha1.ImageSelectorTerm{ID: content.CustomImages[cloud.RegionHN][1].ID})
			Expect(missOf(err).Remedy).To(ContainSubstring("is queued"))
		})
		It("should name ids with what they are when there is none", func() {
			_, err := resolve(v1alpha1.ImageSelectorTerm{ID: "nope"})
			miss := missOf(err)
			Expect(miss.Field).To(Equal("spec.imageSelectorTerms[0].id"))
			Expect(miss.Available).To(And(HaveLen(11), ContainElement(MatchRegexp(`^[0-9a-f-]{36} \(.+\)$`))))
		})
		It("should not call an image missing while one of the lists cannot be read", func() {
			fail("/images")
			_, err := resolve(v1alpha1.ImageSelectorTerm{ID: "nope"})
			Expect(err).To(MatchError(ContainSubstring("spec.imageSelectorTerms[0].id")))
			Expect(errors.As(err, lo.ToPtr((*lookup.NotFoundError)(nil)))).To(BeFalse())
			Expect(resolve(v1alpha1.ImageSelectorTerm{ID: content.CustomImages[cloud.RegionHN][0].ID})).To(HaveField("Name", "golden-node"))
		})
	})
})

var _ = Describe("Terms", func() {
	BeforeEach(func() { start(true) })
	It("should be tried in order", func() {
		Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "absent"}, v1alpha1.ImageSelectorTerm{Name: "golden-node"})).To(HaveField("Name", "golden-node"))
	})
	It("should not go on to the next one when one cannot be looked up", func() {
		fail("/user/images")
		_, err := resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node"},
			v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Ubuntu", Version: "24.04 x64"}})
		Expect(err).To(MatchError(ContainSubstring("spec.imageSelectorTerms[0].name")))
		var miss *lookup.NotFoundError
		Expect(errors.As(err, &miss)).To(BeFalse())
	})
	It("should all be named when none matches", func() {
		_, err := resolve(v1alpha1.ImageSelectorTerm{Name: "absent"}, v1alpha1.ImageSelectorTerm{OS: &v1alpha1.OSImageSelector{Distribution: "Debian", Version: "1"}})
		Expect(err).To(MatchError(And(
			ContainSubstring(`spec.imageSelectorTerms[0].name: nothing matches "absent"`), ContainSubstring("golden-node"),
			ContainSubstring(`spec.imageSelectorTerms[1].os: nothing matches "Debian 1"`), ContainSubstring("Debian 12 x64"))))
	})
	It("should be asked for when there are none", func() {
		_, err := resolve()
		Expect(missOf(err).Remedy).To(ContainSubstring("bke@latest"))
	})
	It("should read each list once while it is cached", func() {
		for range 3 {
			Expect(resolve(v1alpha1.ImageSelectorTerm{Name: "golden-node"})).ToNot(BeNil())
		}
		Expect(lo.CountBy(sandbox.Requests(), func(r cloud.Request) bool {
			return r.Method == http.MethodGet && r.Path == "/iaas-cloud/api/user/images"
		})).To(Equal(1))
	})
})
