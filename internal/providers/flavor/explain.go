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

package flavor

import (
	"fmt"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Explanation says of one flavor in one zone what keeps a NodeClass from launching it.
type Explanation struct {
	// Flavor and Zone are the offering. Zone is empty where the flavor is excluded whatever the zone.
	Flavor, Zone string
	// CPU, MemoryMiB, GPUName and GPUCount are the flavor's size as it is sold.
	CPU, MemoryMiB int
	GPUName        string
	GPUCount       int
	// Source is the least certain source of the numbers that its price is made of.
	Source pricing.Source
	// Excluded says why the NodeClass can never launch it; empty where it can. Unavailable says why it cannot now.
	Excluded, Unavailable string
}

// Explain returns every flavor that the cloud lists, in every zone of the region or, where the zone does not matter, once.
// Those that List returns as available have neither reason.
func (p *DefaultProvider) Explain(nodeClass *v1alpha1.BizflyNodeClass) ([]Explanation, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	c := newClass(nodeClass, snapshot)
	var explained []Explanation
	for _, f := range p.indexOf(snapshot).flavors {
		e := Explanation{Flavor: f.name, CPU: f.cpu, MemoryMiB: f.memoryMiB, GPUName: f.gpuName, GPUCount: f.gpuCount, Source: p.pricing.Source(c.item(f))}
		if e.Excluded = c.excluded(f); e.Excluded != "" {
			explained = append(explained, e)
			continue
		}
		for _, z := range snapshot.Zones() {
			e.Zone, e.Excluded, e.Unavailable = z.Name, c.excludedIn(f, z.Name), ""
			if e.Excluded == "" {
				e.Unavailable = p.unavailableIn(c, f, z.Name)
			}
			explained = append(explained, e)
		}
	}
	return explained, nil
}

// excluded says why the NodeClass cannot use the flavor in any zone.
func (c *class) excluded(f *facts) string {
	switch {
	case f.hidden:
		return "the tuning hides it"
	case !f.soldWith(c.billingPlan):
		return fmt.Sprintf("it is not sold with spec.billingPlan %s", c.billingPlan)
	case !c.selects(f):
		return "no term of spec.flavorSelectorTerms selects it"
	case c.named && len(c.domains(f, lo.Filter(c.zones, func(zone string, _ int) bool { return f.soldIn(zone) }))) == 0:
		return fmt.Sprintf("no zone has the volume types of the disks for the category %s", f.category)
	}
	return ""
}

// excludedIn says why the NodeClass cannot use the flavor in the zone.
func (c *class) excludedIn(f *facts, zone string) string {
	switch {
	case !lo.Contains(c.zones, zone):
		return "the zone is none of the NodeClass's (status.zones)"
	case !f.soldIn(zone):
		return fmt.Sprintf("the zone does not have its generation %s", f.generation)
	}
	return ""
}

// unavailableIn says why the flavor cannot be launched in the zone at the moment.
func (p *DefaultProvider) unavailableIn(c *class, f *facts, zone string) string {
	switch {
	case !c.active[zone]:
		return "BizFly Cloud has closed the zone for new servers"
	case !c.enabled[f.category]:
		return fmt.Sprintf("BizFly Cloud has closed the category %s", f.category)
	case !c.hasDisks(zone, f.category):
		return fmt.Sprintf("the zone has no volume type for the disks of the category %s", f.category)
	}
	reason, unavailable := p.marks.Unavailable(capacity.Offering{
		Flavor: f.name, Zone: zone, BillingPlan: bizfly.PlanWord(c.billingPlan), NodeClass: capacity.NodeClassKey(c.nodeClass),
	})
	if unavailable {
		return "marked unavailable after a rejected launch: " + strings.TrimSpace(reason)
	}
	return ""
}
