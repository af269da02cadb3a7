// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The form of a create request", func() {
	// attempt is the n-th launch of a spec, of the flavor.
	attempt := func(n int, flavor string) func(*instance.LaunchRequest) {
		return func(r *instance.LaunchRequest) {
			r.Flavor = flavor
			r.NodeClaim.Name, r.NodeClaim.UID = fmt.Sprintf("%s-%d", claimName, n), types.UID(fmt.Sprintf("%s-%d", claimUID, n))
			withDataDisks(r)
		}
	}
	DescribeTable("should be found with few rejected requests, and remembered over a restart",
		func(modes []string, flavor string, rejected int, forms map[string]string, disk map[string]any, name string) {
			w := newWorld(cloud.Options{Modes: modes})
			w.launch(attempt(1, flavor))
			Expect(w.created()).To(HaveLen(rejected + 1))
			Expect(lo.LastOrEmpty(w.created())).To(And(HaveKeyWithValue("rootdisk", lo.Assign(map[string]any{"size": 40.0}, disk)),
				HaveKeyWithValue("flavor", name)))
			Expect(w.provider.Forms().Accepted()).To(Equal(forms))

			w.launch(attempt(12, flavor))
			restarted := w.restart()
			restarted.Forms().Restore(forms)
			w.provider = restarted
			w.launch(attempt(13, flavor))
			Expect(w.created()).To(HaveLen(rejected+3), "one for each server")
			Expect(w.box.Servers()).To(HaveLen(3))
		},
		Entry("plain", nil, "p2.2c_4g", 0, map[string]string{"volumeType": "Name"}, map[string]any{"volume_type": "PREMIUM-SSD1"}, "p2.2c_4g"),
		Entry("volume types by type", []string{"volume-type-by-type"}, "p2.2c_4g", 1, map[string]string{"volumeType": "Type"},
			map[string]any{"volume_type": "PREMIUM SSD"}, "p2.2c_4g"),
		Entry("volume types by medium", []string{"volume-type-by-medium"}, "p2.2c_4g", 2, map[string]string{"volumeType": "Medium"},
			map[string]any{"type": "SSD"}, "p2.2c_4g"),
		Entry("volume types swapped", []string{"volume-types-swapped"}, "p2.2c_4g", 0, map[string]string{"volumeType": "Name"},
			map[string]any{"volume_type": "PREMIUM-SSD1"}, "p2.2c_4g"),
		Entry("volume types swapped, by name", []string{"volume-types-swapped-by-name"}, "p2.2c_4g", 1, map[string]string{"volumeType": "Type"},
			map[string]any{"volume_type": "SSD"}, "p2.2c_4g"),
		Entry("volume types swapped, by medium", []string{"volume-types-swapped-by-medium"}, "p2.2c_4g", 2, map[string]string{"volumeType": "Medium"},
			map[string]any{"type": "SSD"}, "p2.2c_4g"),
		Entry("an old flavor", nil, "nix.2c_4g", 0, map[string]string{"volumeType": "Name", "flavor.nix": "Full"},
			map[string]any{"volume_type": "PREMIUM-SSD1"}, "nix.2c_4g"),
		Entry("an old flavor by its short name", []string{"short-flavor-names"}, "nix.2c_4g", 1,
			map[string]string{"volumeType": "Name", "flavor.nix": "Short"}, map[string]any{"volume_type": "PREMIUM-SSD1"}, "2c_4g"),
		Entry("the same in Vietnamese", []string{"short-flavor-names", "vietnamese"}, "nix.2c_4g", 1,
			map[string]string{"volumeType": "Name", "flavor.nix": "Short"}, map[string]any{"volume_type": "PREMIUM-SSD1"}, "2c_4g"),
		Entry("the same without a word", []string{"short-flavor-names", "silent-flavors"}, "nix.2c_4g", 1,
			map[string]string{"volumeType": "Name", "flavor.nix": "Short"}, map[string]any{"volume_type": "PREMIUM-SSD1"}, "2c_4g"),
		Entry("volume types by type, without a word", []string{"volume-type-by-type", "silent-volume-types"}, "p2.2c_4g", 1,
			map[string]string{"volumeType": "Type"}, map[string]any{"volume_type": "PREMIUM SSD"}, "p2.2c_4g"),
		Entry("volume types by medium, without a word", []string{"volume-type-by-medium", "silent-volume-types"}, "p2.2c_4g", 2,
			map[string]string{"volumeType": "Medium"}, map[string]any{"type": "SSD"}, "p2.2c_4g"),
		Entry("the same for an old flavor, whose other name is tried first", []string{"volume-type-by-medium", "silent-volume-types"}, "nix.2c_4g", 4,
			map[string]string{"volumeType": "Medium", "flavor.nix": "Full"}, map[string]any{"type": "SSD"}, "nix.2c_4g"),
		Entry("the same by its short name", []string{"short-flavor-names", "volume-type-by-medium", "silent-volume-types"}, "nix.2c_4g", 5,
			map[string]string{"volumeType": "Medium", "flavor.nix": "Short"}, map[string]any{"type": "SSD"}, "2c_4g"),
		Entry("one field by its last form, where neither is named", []string{"volume-type-by-medium", "silent-volume-types", "silent-flavors"}, "nix.2c_4g", 4,
			map[string]string{"volumeType": "Medium", "flavor.nix": "Full"}, map[string]any{"type": "SSD"}, "nix.2c_4g"),
		Entry("both fields by their last form, where neither is named: as many as there are combinations",
			[]string{"short-flavor-names", "volume-type-by-medium", "silent-volume-types", "silent-flavors"}, "nix.2c_4g", 5,
			map[string]string{"volumeType": "Medium", "flavor.nix": "Short"}, map[string]any{"type": "SSD"}, "2c_4g"),
		Entry("all of it", []string{"short-flavor-names", "silent-flavors", "volume-type-by-medium"}, "nix.2c_4g", 5,
			map[string]string{"volumeType": "Medium", "flavor.nix": "Short"}, map[string]any{"type": "SSD"}, "2c_4g"),
	)
	It("should be learned for each family of flavors by itself", func() {
		w := newWorld(cloud.Options{Modes: []string{"short-flavor-names"}})
		w.launch(attempt(1, "nix.2c_4g"))
		w.launch(attempt(2, "4c_8g_enterprise"), func(r *instance.LaunchRequest) { r.Category = "enterprise" })
		w.launch(attempt(3, "nix.4c_8g"))
		Expect(w.created()).To(HaveLen(5), "one rejection for each family")
		Expect(w.provider.Forms().Accepted()).To(And(HaveKeyWithValue("flavor.nix", "Short"), HaveKeyWithValue("flavor.enterprise", "Short")))
	})
	DescribeTable("should change with the next launch where only the task fails", func(modes ...string) {
		w := newWorld(cloud.Options{Modes: append(modes, "volume-type-by-medium", "late-rejections")})
		for range 2 {
			request, _ := w.request(attempt(1, "p2.2c_4g"))
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(And(MatchError(instance.ErrBuildFailed), MatchError(instance.ErrFormRejected)))
		}
		w.launch(attempt(2, "p2.2c_4g"))
		Expect(w.provider.Forms().Accepted()).To(Equal(map[string]string{"volumeType": "Medium"}))
	},
		Entry("and names the volume type"),
		Entry("and names nothing", "silent-volume-types"),
	)
	It("should change with the next launch where an old flavor's task fails for no known reason", func() {
		w := newWorld(cloud.Options{Modes: []string{"old-flavors-closed", "late-rejections"}})
		request, _ := w.request(attempt(1, "nix.2c_4g"))
		_, _, err := send(ctx, w.provider, request, nil)
		Expect(err).To(And(MatchError(instance.ErrBuildFailed), MatchError(instance.ErrFormRejected)))
		Expect(w.provider.Doubted("nix.2c_4g", w.nodeClass())).To(BeTrue())
	})
	DescribeTable("should not be blamed for anything else",
		func(fault cloud.Fault) {
			w := newWorld(cloud.Options{})
			w.box.AddFaults(1, fault)
			request, _ := w.request(attempt(1, "nix.2c_4g"))
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(HaveOccurred())
			Expect(err).ToNot(MatchError(instance.ErrFormRejected))
			Expect(w.created()).To(HaveLen(1))
		},
		Entry("the image", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Message: "Image x could not be found."}),
		Entry("the network", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400,
			Message: "Network x could not be found."}),
		Entry("a permission", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 403, Message: "no"}),
		Entry("capacity", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectNoCapacity}),
		Entry("the size of a disk", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400,
			Message: "Image needs a bigger rootdisk"}),
		Entry("a task that fails for the image", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectTaskFailed,
			Message: "E_4711 of image x"}),
		Entry("a task that fails without a word", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectTaskFailed}),
		Entry("a build that fails without a reason", cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectErrorServer}),
	)
	It("should not be blamed for an outage", func() {
		w := newWorld(cloud.Options{}, func(c *instance.Config) {
			// No server will come of it.
			c.Settings = times(func(o *options.Options) { o.ServerIDWait = time.Millisecond })
		})
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusNotImplemented})
		request, _ := w.request(attempt(1, "nix.2c_4g"))
		_, _, err := send(ctx, w.provider, request, nil)
		Expect(err).To(HaveOccurred())
		Expect(err).ToNot(MatchError(instance.ErrFormRejected))
		Expect(w.created()).To(HaveLen(1))
	})
	// oldForms are those of an old flavor: each name with each form of a volume type.
	oldForms := []string{"nix.2c_4g PREMIUM-SSD1", "2c_4g PREMIUM-SSD1", "nix.2c_4g PREMIUM SSD", "2c_4g PREMIUM SSD", "nix.2c_4g SSD", "2c_4g SSD"}
	DescribeTable("should be tried once in each form where none is accepted, and begin anew", func(flavor, message string, forms []string) {
		w := newWorld(cloud.Options{})
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Message: message})
		request, _ := w.request(attempt(1, flavor))
		for n := range forms {
			request.Attempt = n + 1
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
			Expect(errors.Is(err, instance.ErrFormRejected)).To(Equal(n+1 < len(forms)))
		}
		Expect(lo.Map(w.created(), func(body map[string]any, _ int) string {
			disk := body["rootdisk"].(map[string]any)
			return fmt.Sprint(body["flavor"], " ", lo.CoalesceOrEmpty(disk["volume_type"], disk["type"]))
		})).To(Equal(forms))
		Expect(w.provider.Forms().Accepted()).To(BeEmpty())
		w.box.ClearFaults()
		w.launch(attempt(2, flavor))
		Expect(w.created()).To(HaveLen(len(forms) + 1))
	},
		Entry("where nothing is named", "nix.2c_4g", "no", oldForms),
		Entry("where nothing is named, of a flavor that has one name", "p2.2c_4g", "no",
			[]string{"p2.2c_4g PREMIUM-SSD1", "p2.2c_4g PREMIUM SSD", "p2.2c_4g SSD"}),
		Entry("of the flavor, where that is named", "nix.2c_4g", "Gói không hợp lệ", oldForms[:2]),
		Entry("of the flavor, which has one", "p2.2c_4g", "Gói không hợp lệ", []string{"p2.2c_4g PREMIUM-SSD1"}),
		Entry("where the volume type is named", "nix.2c_4g", "Volume type is invalid", oldForms),
	)
	It("should be tried no more once it was accepted, whatever is rejected without a word", func() {
		w := newWorld(cloud.Options{})
		w.launch(attempt(1, "nix.2c_4g"))
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Message: "no"})
		for n, flavor := range []string{"nix.2c_4g", "p2.2c_4g"} {
			request, _ := w.request(attempt(2+n, flavor))
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
			Expect(err).ToNot(MatchError(instance.ErrFormRejected))
		}
		Expect(w.created()).To(HaveLen(3))
	})
	It("should begin anew in another zone", func() {
		w := newWorld(cloud.Options{})
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Contains: `"HN1"`, Effect: cloud.EffectStatus, Status: 422, Message: "E_4711"})
		for n := range 4 {
			request, _ := w.request(attempt(n+1, "nix.2c_4g"), func(r *instance.LaunchRequest) { r.Zone = "HN1" })
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrFormRejected))
		}
		before := len(w.created())
		w.launch(attempt(5, "nix.2c_4g"), func(r *instance.LaunchRequest) { r.Zone = "HN2" })
		Expect(w.created()).To(HaveLen(before + 1))
		Expect(w.provider.Forms().Accepted()).To(Equal(map[string]string{"volumeType": "Name", "flavor.nix": "Full"}))
	})
	It("should make flavors with two names doubtful for two hours, but no launched family", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, func(c *instance.Config) { c.Clock = now })
		w.provider.Forms().Restore(map[string]string{"flavor.nix": "Full"})
		reject := func(n int, flavor string) {
			w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Message: "no"})
			request, _ := w.request(attempt(n, flavor))
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
			w.box.ClearFaults()
		}
		reject(2, "nix.4c_8g")
		Expect(w.provider.Doubted("2c_4g_basic", w.nodeClass())).To(BeFalse(), "the names of nix are known: the flavor is closed")
		reject(3, "4c_8g_enterprise")
		Expect(w.provider.Doubted("4c_8g_enterprise", w.nodeClass())).To(BeTrue())
		Expect(w.provider.Doubted("2c_4g_basic", w.nodeClass())).To(BeTrue())
		Expect(w.provider.Doubted("nix.2c_4g", w.nodeClass())).To(BeFalse())
		Expect(w.provider.Doubted("p2.2c_4g", w.nodeClass())).To(BeFalse(), "one name")
		other := w.nodeClass()
		other.Generation++
		Expect(w.provider.Doubted("2c_4g_basic", other)).To(BeFalse(), "the rejection may be the NodeClass's own")
		now.Step(2 * time.Hour)
		Expect(w.provider.Doubted("2c_4g_basic", w.nodeClass())).To(BeFalse())
	})
	It("should be accepted where the id of the server is shown later than a launch waits for it", func() {
		w := newWorld(cloud.Options{Latency: 100 * time.Millisecond, HideBuilding: true}, func(c *instance.Config) {
			c.Settings = times(func(o *options.Options) { o.ServerIDWait = time.Nanosecond })
		})
		request, written := w.request(attempt(1, "nix.2c_4g"))
		_, _, err := send(ctx, w.provider, request, written)
		Expect(err).To(MatchError(instance.ErrAwaitingServerID))
		w.provider = w.restart(func(c *instance.Config) { c.Settings = times(func(*options.Options) {}) })
		Expect(w.provider.Resume(ctx, string(request.NodeClaim.UID), written.last())).Error().NotTo(HaveOccurred())
		Expect(w.provider.Forms().Accepted()).To(Equal(map[string]string{"volumeType": "Name", "flavor.nix": "Full"}))
	})
	It("should stay where it was accepted, whatever is rejected later", func() {
		w := newWorld(cloud.Options{})
		w.launch(attempt(1, "p2.2c_4g"))
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Message: "Volume type is invalid"})
		request, _ := w.request(attempt(2, "p2.2c_4g"))
		_, _, err := send(ctx, w.provider, request, nil)
		Expect(bizfly.IsInvalid(err)).To(BeTrue())
		Expect(w.created()).To(HaveLen(2))
	})
	It("should keep a volume type that a NodeClass names, in each form", func() {
		w := newWorld(cloud.Options{Modes: []string{"volume-types-swapped-by-medium"}})
		w.launch(class(func(c *v1alpha1.BizflyNodeClass) {
			c.Spec.RootDisk = &v1alpha1.RootDisk{Size: gib("40Gi"), VolumeType: "PREMIUM-HDD1"}
		}))
		Expect(lo.LastOrEmpty(w.created())).To(HaveKeyWithValue("rootdisk", map[string]any{"size": 40.0, "type": "HDD"}))
	})
	It("should ignore a recorded form that it does not know", func() {
		forms := &instance.Forms{}
		forms.Restore(map[string]string{"volumeType": "Colour", "colour": "Name", "flavor.nix": "Short"})
		forms.Restore(map[string]string{"flavor.nix": "Full"})
		Expect(forms.Accepted()).To(Equal(map[string]string{"flavor.nix": "Short"}))
	})
})
