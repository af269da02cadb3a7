// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var env *coretest.Environment

func TestFlavor(t *testing.T) { suite.Run(t, "Flavor") }

var _ = unit.APIServer(&env)

// room is the provider with everything below it.
type room struct {
	*flavor.DefaultProvider
	clock   *clocktesting.FakeClock
	marks   *capacity.DefaultProvider
	options *options.Store
}

func newRoom(source catalog.Provider, reader client.Reader) *room {
	r := &room{clock: clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))}
	r.marks = capacity.NewDefaultProvider(r.clock)
	r.options = options.NewStore(options.Defaults())
	r.DefaultProvider = flavor.NewDefaultProvider(source, r.marks,
		bootstrap.NewDefaultProvider(bootstrap.Config{}, source), reader, r.options)
	return r
}

// tune changes settings.
func (r *room) tune(change func(*options.Options)) {
	changed := *r.options.Load()
	change(&changed)
	r.options.Store(&changed)
}

// list returns the types by name.
func (r *room) list(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) map[string]*cloudprovider.InstanceType {
	GinkgoHelper()
	types := lo.Must(r.List(ctx, nodeClass))
	return lo.SliceToMap(types, func(it *cloudprovider.InstanceType) (string, *cloudprovider.InstanceType) { return it.Name, it })
}

func newNodeClass(zones ...string) *v1alpha1.BizflyNodeClass {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	nodeClass.Name = "default"
	nodeClass.UID = types.UID(string(uuid.NewUUID()))
	nodeClass.Generation = 1
	nodeClass.Status.Zones = zones
	return nodeClass
}

// sandboxCatalog reads a sandbox through the real client.
func sandboxCatalog(ctx context.Context, sandbox *cloud.Sandbox) *catalog.DefaultProvider {
	GinkgoHelper()
	return connect.Catalog(ctx, connect.Client(ctx, sandbox))
}

// handmade is a catalog that the test writes itself, for what the sandbox does not sell.
type handmade struct{ snapshot *catalog.Snapshot }

func (h *handmade) Snapshot() (*catalog.Snapshot, error) {
	if h.snapshot == nil {
		return nil, catalog.ErrNotReady
	}
	return h.snapshot, nil
}

func (h *handmade) Refresh(context.Context) error { return nil }

// change publishes a changed snapshot.
func (h *handmade) change(edit func(*catalog.Snapshot)) {
	next := *h.snapshot
	next.Seq++
	edit(&next)
	h.snapshot = &next
}

func newHandmade(flavors ...*gobizfly.ServerFlavorResponse) *handmade {
	snapshot := &catalog.Snapshot{
		Seq: 1, Flavors: flavors,
		Region: gobizfly.Region{Active: true, ShortName: "HN", RegionName: "HaNoi"},
	}
	zones := []string{"HN1", "HN2", "HN3"}
	for _, name := range zones {
		snapshot.Region.Zones = append(snapshot.Region.Zones, gobizfly.AvailabilityZone{ShortName: name, Active: true})
	}
	for _, category := range []string{"Basic", "Premium", "Enterprise", "Dedicated"} {
		for _, medium := range []string{"HDD", "SSD"} {
			snapshot.VolumeTypes = append(snapshot.VolumeTypes, &gobizfly.VolumeType{
				Name: category + "-" + medium, Category: category, Type: medium, AvailabilityZones: zones,
			})
		}
	}
	return &handmade{snapshot: snapshot}
}

func newFlavor(name string, edits ...func(*gobizfly.ServerFlavorResponse)) *gobizfly.ServerFlavorResponse {
	f := &gobizfly.ServerFlavorResponse{ID: name, Name: name, Category: "premium", VCPUs: 2, RAM: 4096}
	for _, edit := range edits {
		edit(f)
	}
	return f
}

// manyFlavors are n flavors of all categories and sizes.
func manyFlavors(n int) []*gobizfly.ServerFlavorResponse {
	categories := []string{"basic", "premium", "enterprise", "dedicated"}
	return lo.Times(n, func(i int) *gobizfly.ServerFlavorResponse {
		cpu := 1 + i%64
		return newFlavor(fmt.Sprintf("%c2.%dc_%dg_%03d", categories[i%4][0], cpu, 4*cpu, i), func(f *gobizfly.ServerFlavorResponse) {
			f.Category, f.VCPUs, f.RAM = categories[i%4], cpu, 4096*cpu
			f.Generation.Code, f.Generation.Vendor = "2", "Intel"
		})
	})
}
