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

package cloudprovider

import (
	"fmt"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxFailures is how many different offerings may fail with one NodeClass before its launches pause.
const maxFailures = 3

// launchPauses pauses the launches of NodeClasses whose launches fail with different offerings, since then the NodeClass itself
// may be the cause. A pause ends half-open: one launch at a time is tried; its success ends the pause, its failure prolongs it.
// Pauses are in memory: after a restart, three failures show again what is wrong.
type launchPauses struct {
	clock clock.Clock
	mu    sync.Mutex
	cache *cache.Cache
	// views are the instance types of NodeClasses whose launches pause. Core asks for them hundreds of times per minute, and
	// compares what it gets with what it got before.
	views *cache.Cache
}

// pause is what is remembered of one NodeClass. It is replaced, never changed.
type pause struct {
	// key is the NodeClassKey: a changed spec or image starts from zero.
	key string
	// failures are the last failures, by offering, and until when they count; last is the newest.
	failures map[capacity.Offering]time.Time
	last     failure
	// count is how often launches were paused since the last success; until is when the last of these pauses ends.
	count int
	until time.Time
	// trial is the NodeClaim that is tried after a pause, and trialUntil is when the next one may be tried.
	trial      types.UID
	trialUntil time.Time
}

// of returns what is remembered of the NodeClass as it is now.
func (p *launchPauses) of(nodeClass *v1alpha1.BizflyNodeClass) (pause, bool) {
	if known, ok := p.cache.Get(string(nodeClass.UID)); ok && known.(pause).key == capacity.NodeClassKey(nodeClass) {
		return known.(pause), true
	}
	return pause{key: capacity.NodeClassKey(nodeClass)}, false
}

// failed counts the failure of an offering, and returns for how long launches pause when they do so from now on.
func (p *launchPauses) failed(nodeClass *v1alpha1.BizflyNodeClass, offering capacity.Offering, claim types.UID, f failure) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, _ := p.of(nodeClass)
	now := p.clock.Now()
	known.failures = lo.PickBy(known.failures, func(_ capacity.Offering, until time.Time) bool { return now.Before(until) })
	known.failures[offering] = now.Add(lo.Ternary(f.reason == ReasonNotRegistered, ttl.NotRegistered, ttl.NodeClassFailures))
	known.last = f
	var length time.Duration
	if known.count == 0 && len(known.failures) >= maxFailures || known.count > 0 && known.trial == claim {
		length = min(ttl.FirstPause<<min(known.count, 8), ttl.MaxLaunchPause)
		known.count, known.until, known.trial = known.count+1, now.Add(length), ""
	}
	p.cache.SetDefault(string(nodeClass.UID), known)
	return length
}

// admit returns nil when the NodeClaim may be launched, which makes it the trial after a pause.
func (p *launchPauses) admit(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, exists := p.of(nodeClass)
	if !exists || known.count == 0 || known.trial == claim {
		return nil
	}
	if p.blocks(known) {
		return fmt.Errorf("launches with BizflyNodeClass %q keep failing and are tried one at a time: %w", nodeClass.Name, known.last.err)
	}
	known.trial, known.trialUntil = claim, p.clock.Now().Add(lifecycle.LaunchTimeout+time.Minute)
	p.cache.SetDefault(string(nodeClass.UID), known)
	return nil
}

// tries reports whether the NodeClaim is the trial of its NodeClass.
func (p *launchPauses) tries(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) bool {
	known, exists := p.of(nodeClass)
	return exists && known.trial == claim
}

// launched allows the trial that has its server the time to register.
func (p *launchPauses) launched(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, exists := p.of(nodeClass); exists && known.trial == claim {
		known.trialUntil = p.clock.Now().Add(ttl.TrialRegistration)
		p.cache.SetDefault(string(nodeClass.UID), known)
	}
}

// succeeded ends the pause when its trial has registered; without a pause it forgets the failures.
func (p *launchPauses) succeeded(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, exists := p.of(nodeClass); exists && (known.count == 0 || known.trial == claim) {
		p.cache.Delete(string(nodeClass.UID))
	}
}

// release lets another NodeClaim be the trial when this one ended without a result.
func (p *launchPauses) release(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, item := range p.cache.Items() {
		if known := item.Object.(pause); known.trial == claim {
			known.trial = ""
			p.cache.SetDefault(uid, known)
		}
	}
}

// active reports whether nothing can be launched with the NodeClass at the moment.
func (p *launchPauses) active(nodeClass *v1alpha1.BizflyNodeClass) bool {
	known, exists := p.of(nodeClass)
	return exists && p.blocks(known)
}

func (p *launchPauses) blocks(known pause) bool {
	now := p.clock.Now()
	return known.count > 0 && (now.Before(known.until) || known.trial != "" && now.Before(known.trialUntil))
}

// view is what was derived from one slice of instance types, which is shared until something changes.
type view struct {
	from  *cloudprovider.InstanceType
	count int
	types []*cloudprovider.InstanceType
}

// unavailable returns the instance types with every offering unavailable. They keep existing, since core drifts nodes whose type
// has vanished and prices them at 0. The given ones are shared and not changed.
func (p *launchPauses) unavailable(nodeClass types.UID, instanceTypes []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if len(instanceTypes) == 0 {
		return instanceTypes
	}
	if known, ok := p.views.Get(string(nodeClass)); ok && known.(view).from == instanceTypes[0] && known.(view).count == len(instanceTypes) {
		return known.(view).types
	}
	derived := view{from: instanceTypes[0], count: len(instanceTypes), types: lo.Map(instanceTypes, withoutOfferings)}
	p.views.SetDefault(string(nodeClass), derived)
	return derived.types
}

// withoutOfferings returns a new instance type, because one that has been used must not be copied.
func withoutOfferings(it *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name:         it.Name,
		Requirements: it.Requirements,
		Capacity:     it.Capacity,
		Overhead:     it.Overhead,

		VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		Offerings: lo.Map(it.Offerings, func(offering *cloudprovider.Offering, _ int) *cloudprovider.Offering {
			return &cloudprovider.Offering{Requirements: offering.Requirements, Price: offering.Price}
		}),
	}
}
