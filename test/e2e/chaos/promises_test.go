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

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// sight is everything since a time, the cloud first: a server that is in it was ordered for a claim that existed before.
type sight struct {
	at     time.Time
	state  cloud.State
	claims []karpv1.NodeClaim
	nodes  []corev1.Node
	pods   []corev1.Pod
}

// look looks at everything. It fails while the API server is away.
func look() (*sight, error) {
	at := time.Now()
	state, err := env.Sandbox().State(ctx)
	if err != nil {
		return nil, err
	}
	claims, nodes, pods := &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{claims, nodes, pods} {
		if err := env.Client().List(ctx, list); err != nil {
			return nil, err
		}
	}
	return &sight{at: at, state: state, claims: claims.Items, nodes: nodes.Items, pods: pods.Items}, nil
}

// ours are the servers that no stranger owns.
func (s *sight) ours() []cloud.Server {
	return lo.Filter(s.state.Servers, func(s cloud.Server, _ int) bool { return !estate.hasServer(s.ID) })
}

func (s *sight) serverOf(claim *karpv1.NodeClaim) (cloud.Server, bool) {
	return lo.Find(s.state.Servers, func(s cloud.Server) bool { return providerid.New(s.ID) == claim.Status.ProviderID })
}

func claimUIDOf(s cloud.Server) types.UID {
	return types.UID(s.Metadata[v1alpha1.MetadataNodeClaimUID])
}

// observer remembers what it has seen.
type observer struct {
	mu        *sync.Mutex
	providers map[types.UID]string
	built     map[types.UID]map[string]bool
	extras    map[string]bool
	orphans   map[string]orphan
}

// orphan is when the garbage collector was first seen to leave a server alone that it should delete.
type orphan struct {
	process string
	passes  int
}

func newObserver() observer {
	return observer{mu: &sync.Mutex{}, providers: map[types.UID]string{}, built: map[types.UID]map[string]bool{}, extras: map[string]bool{}, orphans: map[string]orphan{}}
}

// planted says that the server of this name is an extra one that the run itself has made.
func (o *observer) planted(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.extras[name] = true
}

func (o *observer) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return lo.SumBy(lo.Values(o.built), func(servers map[string]bool) int { return len(servers) })
}

// observe looks all the time, until it is told to stop.
func (w *world) observe() (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if seen, err := look(); err == nil {
				w.observer.never(seen)
				if w.quiet.Load() {
					w.observer.collected(seen)
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-over
	})
}

// never looks for what must not be the case at any time.
func (o *observer) never(seen *sight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range estate.touched(seen) {
		broken("%s", what)
	}
	taken := map[string]string{}
	for i := range seen.claims {
		claim := &seen.claims[i]
		id := claim.Status.ProviderID
		if before := o.providers[claim.UID]; before != "" && before != id {
			broken("claim %s had server %s and now has %q", claim.Name, before, id)
		}
		if id == "" {
			continue
		}
		o.providers[claim.UID] = id
		if other := taken[id]; other != "" {
			broken("claims %s and %s have the same server %s", other, claim.Name, id)
		}
		taken[id] = claim.Name
	}
	owners := lo.SliceToMap(seen.ours(), func(s cloud.Server) (string, types.UID) { return providerid.New(s.ID), claimUIDOf(s) })
	registered := map[types.UID]string{}
	for _, node := range seen.nodes {
		owner := owners[node.Spec.ProviderID]
		if node.Labels[karpv1.NodeRegisteredLabelKey] == "" || owner == "" {
			continue
		}
		if other := registered[owner]; other != "" {
			broken("two servers are registered for one claim: %s and %s", other, node.Name)
		}
		registered[owner] = node.Name
	}
	for _, s := range seen.ours() {
		if o.extras[s.Name] {
			continue
		}
		uid := claimUIDOf(s)
		if o.built[uid] == nil {
			o.built[uid] = map[string]bool{}
		}
		o.built[uid][s.Name] = true
		if len(o.built[uid]) > 1 {
			broken("%d servers were built for claim %s: %v", len(o.built[uid]), uid, lo.Keys(o.built[uid]))
		}
	}
}

// collected looks whether servers without a claim, and second servers of a claim, are gone within one pass of the
// garbage collector. Of three passes that end after such a server was seen, the first may have begun before, and the last
// may have ended after it was seen again.
func (o *observer) collected(seen *sight) {
	providers := lo.SliceToMap(seen.claims, func(c karpv1.NodeClaim) (types.UID, string) { return c.UID, c.Status.ProviderID })
	left := lo.Filter(seen.ours(), func(s cloud.Server, _ int) bool {
		id, exists := providers[claimUIDOf(s)]
		extra := !exists || id != "" && id != providerid.New(s.ID)
		return extra && !s.Truth.Deleting && seen.at.Sub(s.Truth.CreatedAt) > grace+2*time.Second
	})
	if len(left) == 0 {
		o.orphans = map[string]orphan{}
		return
	}
	process, count := passes()
	if process == "" {
		return
	}
	for _, s := range left {
		first, known := o.orphans[s.Name]
		switch {
		case !known || first.process != process:
			o.orphans[s.Name] = orphan{process: process, passes: count}
		case count >= first.passes+3:
			broken("server %s (%s), which no claim accounts for, outlived a whole pass of the garbage collector", s.Name, s.Status)
		}
	}
}

// unsettled says what is not yet as it must be once nothing goes wrong any more.
func (w *world) unsettled() []string {
	seen, err := look()
	if err != nil {
		return []string{err.Error()}
	}
	open := seen.loose()
	alive := lo.SliceToMap(seen.ours(), func(s cloud.Server) (string, bool) { return s.Name, s.Status == cloud.StatusActive })
	bound := lo.CountBy(seen.pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning && alive[p.Spec.NodeName]
	})
	if bound != int(w.wanted) {
		open = append(open, fmt.Sprintf("%d of %d pods run", bound, w.wanted))
	}
	return open
}

// left says what is left once nobody wants anything any more.
func (w *world) left() []string {
	seen, err := look()
	if err != nil {
		return []string{err.Error()}
	}
	open := seen.loose()
	for _, claim := range seen.claims {
		open = append(open, fmt.Sprintf("claim %s is left", claim.Name))
	}
	for _, node := range seen.nodes {
		open = append(open, fmt.Sprintf("node %s is left", node.Name))
	}
	slices.SortFunc(open, strings.Compare)
	return slices.Compact(open)
}

// loose says what does not belong together: claims without servers, servers without claims, and whatever belongs to
// neither.
func (s *sight) loose() []string {
	var open []string
	say := func(format string, args ...any) { open = append(open, fmt.Sprintf(format, args...)) }
	byProvider := lo.KeyBy(s.claims, func(c karpv1.NodeClaim) string { return c.Status.ProviderID })
	for i := range s.claims {
		claim := &s.claims[i]
		server, exists := s.serverOf(claim)
		switch {
		case !claim.DeletionTimestamp.IsZero():
			say("claim %s is being deleted", claim.Name)
		case !exists:
			say("claim %s has no server: %s", claim.Name, claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).Message)
		case server.Status != cloud.StatusActive:
			say("server %s is %s", server.Name, server.Status)
		case !claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue():
			say("claim %s is not registered", claim.Name)
		}
	}
	owners := map[string]bool{}
	for _, server := range s.state.Servers {
		_, claimed := byProvider[providerid.New(server.ID)]
		owners[server.ID] = claimed || estate.hasServer(server.ID)
		if !owners[server.ID] {
			say("server %s (%s) has no claim", server.Name, server.Status)
		}
	}
	for _, node := range s.nodes {
		if _, claimed := byProvider[node.Spec.ProviderID]; !claimed {
			say("node %s has no claim", node.Name)
		}
	}
	for _, v := range s.state.Volumes {
		attached := lo.SomeBy(v.Attachments, func(a cloud.VolumeAttachment) bool { return owners[a.ServerID] })
		if !attached && !estate.hasVolume(v.ID) {
			say("disk %s is left (%s)", v.Name, v.Status)
		}
	}
	for _, nic := range s.state.NetworkInterfaces {
		if !owners[nic.DeviceID] {
			say("network interface %s is left", nic.Name)
		}
	}
	for _, ip := range s.state.WanIPs {
		if !owners[ip.DeviceID] {
			say("address %s is left", ip.IPAddress)
		}
	}
	slices.SortFunc(open, strings.Compare)
	return open
}

// mend plays the people of the cluster, for whom a run has no time: they replace the node of a server that is broken,
// which core's node repair does after ten minutes, force its pods to go, for which core waits another minute, and change a
// NodeClass whose launches pause after failures, which ends by itself after ten minutes.
func (w *world) mend() {
	seen, err := look()
	if err != nil {
		return
	}
	for i := range seen.claims {
		claim := &seen.claims[i]
		server, exists := seen.serverOf(claim)
		if exists && server.Status == cloud.StatusError && claim.DeletionTimestamp.IsZero() && claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
			happened("claim %s is deleted, since its server is broken", claim.Name)
			insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, claim)) })
		}
	}
	running := lo.SliceToMap(seen.ours(), func(s cloud.Server) (string, bool) { return s.Name, s.Status == cloud.StatusActive })
	for i := range seen.pods {
		pod := &seen.pods[i]
		if pod.DeletionTimestamp != nil && seen.at.After(pod.DeletionTimestamp.Add(5*time.Second)) && !running[pod.Spec.NodeName] {
			happened("pod %s is deleted by force, since nobody ends it", pod.Name)
			insist(func() error {
				return client.IgnoreNotFound(env.Client().Delete(ctx, pod, client.GracePeriodSeconds(0)))
			})
		}
	}
	class := &v1alpha1.BizflyNodeClass{}
	if env.Client().Get(ctx, types.NamespacedName{Name: w.class.Name}, class) != nil ||
		!class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsFalse() || class.Generation > w.class.Generation {
		return
	}
	happened("the NodeClass is changed, since its launches pause: %s", class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).Message)
	class.Spec.PlacementStrategy = v1alpha1.PlacementStrategySpread
	if env.Client().Update(ctx, class) == nil {
		w.class = class
	}
}
