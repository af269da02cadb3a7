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
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// maxLogged bounds the memory of what was logged already; a catalog has far fewer flavors that are not for us.
const maxLogged = 4096

// index is the flavors of one catalog content, parsed. It is immutable.
type index struct {
	seq      uint64
	settings uint64
	flavors  []*facts // sorted by name
	byName   map[string]*facts
	skipped  []skip
}

// skip is a flavor that is not for us, and why.
type skip struct{ name, reason string }

// indexOf returns the parsed flavors of the snapshot. Two that parse the same content at once do so in vain but not
// wrongly.
func (p *DefaultProvider) indexOf(snapshot *catalog.Snapshot) *index {
	settings := p.active()
	if current := p.index.Load(); current != nil && current.seq == snapshot.Seq && current.settings == settings.seq {
		return current
	}
	made := &index{seq: snapshot.Seq, settings: settings.seq, byName: make(map[string]*facts, len(snapshot.Flavors))}
	listed := make(map[string]bool, len(snapshot.Flavors))
	for _, flavor := range snapshot.Flavors {
		listed[flavor.Name] = true
		override := settings.from.FlavorOverrides[flavor.Name]
		parsed, reason := parse(applied(override, flavor))
		if reason == "" && made.byName[flavor.Name] != nil {
			reason = "another flavor has the same name"
		}
		if reason != "" {
			made.skipped = append(made.skipped, skip{flavor.Name, reason})
			continue
		}
		parsed.hidden = override.Hidden
		made.byName[parsed.name] = parsed
		made.flavors = append(made.flavors, parsed)
	}
	for _, name := range slices.Sorted(maps.Keys(settings.from.FlavorOverrides)) {
		if !listed[name] {
			made.skipped = append(made.skipped, skip{name, "flavorOverrides names it, but the cloud does not list it"})
		}
	}
	p.index.Store(made)
	return made
}

// logSkipped says once for each flavor why it is not used.
func (p *DefaultProvider) logSkipped(ctx context.Context, idx *index) {
	p.loggedMu.Lock()
	defer p.loggedMu.Unlock()
	for _, s := range idx.skipped {
		if _, done := p.logged[s]; done || len(p.logged) >= maxLogged {
			continue
		}
		p.logged[s] = struct{}{}
		log.FromContext(ctx).WithValues("flavor", s.name, "reason", s.reason).Info("ignoring a flavor")
	}
}
