// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/config/samples"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Catalog is the catalog that is built into the plugin.
type Catalog struct {
	// Region and Zones are those of the flavors, Flavors how many there are.
	Region  string   `json:"region"`
	Zones   []string `json:"zones"`
	Flavors int      `json:"flavors"`
	// PricesAsOf is the day of the price table, as 2026-11-21.
	PricesAsOf string `json:"pricesAsOf"`
}

// embeddedCatalog describes the plugin's catalog; nil is that of BizFly Cloud.
func embeddedCatalog(cloud *session.Cloud) (*Catalog, error) {
	if !cloud.Embedded {
		return nil, nil
	}
	snapshot, err := cloud.Catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	return &Catalog{
		Region: snapshot.Region.ShortName, Zones: openZones(snapshot), Flavors: len(snapshot.Flavors), PricesAsOf: cloud.Settings.Load().Prices.AsOf,
	}, nil
}

func openZones(snapshot *catalog.Snapshot) []string {
	return lo.FilterMap(snapshot.Zones(), func(z catalog.Zone, _ int) (string, bool) { return z.Name, z.Active })
}

// resolveEmbedded makes a NodeClass ready in the zones that it asks for: what else it names is in an account, and prices do not depend on it.
func (s *Simulation) resolveEmbedded(ctx context.Context, cloud *session.Cloud, nodeClass *v1alpha1.BizflyNodeClass) error {
	snapshot, err := cloud.Catalog.Snapshot()
	if err != nil {
		return err
	}
	open := openZones(snapshot)
	nodeClass.Status.Zones = lo.Filter(open, func(zone string, _ int) bool {
		return len(nodeClass.Spec.Zones) == 0 || slices.Contains(nodeClass.Spec.Zones, zone)
	})
	if len(nodeClass.Status.Zones) == 0 {
		s.note("BizflyNodeClass %s asks for the zones %v, and the embedded catalog has %v", nodeClass.Name, nodeClass.Spec.Zones, open)
	}
	conditions := nodeClass.StatusConditions()
	for _, condition := range conditions.List() {
		conditions.SetTrue(condition.Type)
	}
	return s.Objects.Status().Update(ctx, nodeClass)
}

// withSamples adds the default sample's NodePool where there is none, without its limits, which are for beginners, and its NodeClass under
// each name that a NodePool refers to and that does not exist. It returns what was added, by kind and name.
func withSamples(objects memory.Objects) (memory.Objects, []string, error) {
	var added []string
	if len(memory.Of[*karpv1.NodePool](objects)) == 0 {
		set, err := manifests.Read(bytes.NewReader(samples.NodePool), "-")
		if err != nil {
			return nil, nil, fmt.Errorf("reading the sample of a NodePool: %w", err)
		}
		for _, pool := range memory.Of[*karpv1.NodePool](set.Objects) {
			pool.Spec.Limits = nil
			objects, added = append(slices.Clip(objects), pool), append(added, "NodePool "+pool.Name)
		}
	}
	known := lo.KeyBy(memory.Of[*v1alpha1.BizflyNodeClass](objects), func(n *v1alpha1.BizflyNodeClass) string { return n.Name })
	for _, pool := range memory.Of[*karpv1.NodePool](objects) {
		name := lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
		if name == "" || known[name] != nil {
			continue
		}
		set, err := manifests.Read(bytes.NewReader(samples.NodeClass), "-")
		if err != nil {
			return nil, nil, fmt.Errorf("reading the sample of a BizflyNodeClass: %w", err)
		}
		for _, nodeClass := range memory.Of[*v1alpha1.BizflyNodeClass](set.Objects) {
			nodeClass.Name, known[name] = name, nodeClass
			objects, added = append(slices.Clip(objects), nodeClass), append(added, "BizflyNodeClass "+name)
		}
	}
	return objects, added, nil
}
