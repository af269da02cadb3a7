// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// interval is how often the cluster and the cloud are looked at; the timeline is at most this late.
const interval = 200 * time.Millisecond

// timeline prints what happens, by comparing the state with the one before.
type timeline struct {
	out   io.Writer
	start time.Time
	env   *environment.Environment

	last   snapshot
	prices map[offering]float64
	// said has the lines that were printed, by kind and id, so that each is printed once.
	said sets.Set[string]
	// pods is when each pod was first seen, servers when each server was.
	pods    map[types.UID]time.Time
	servers map[string]time.Time
	known   map[string]cloud.Server
	// joined are the names of the nodes that became ready.
	joined sets.Set[string]
	// failure is why the last look failed, empty when it did not.
	failure string
}

func newTimeline(out io.Writer) *timeline {
	return &timeline{
		out: out, start: time.Now(), said: sets.New[string](), pods: map[types.UID]time.Time{},
		servers: map[string]time.Time{}, known: map[string]cloud.Server{}, joined: sets.New[string](),
	}
}

// print writes one line.
func (t *timeline) print(what, format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, "%6.1fs  %-8s %s\n", time.Since(t.start).Seconds(), what, fmt.Sprintf(format, args...))
}

// once prints a line the first time that it is asked to for the key.
func (t *timeline) once(key, what, format string, args ...any) {
	if !t.said.Has(key) {
		t.said.Insert(key)
		t.print(what, format, args...)
	}
}

// await prints what happens until the condition holds, the context ends or a process dies.
func (t *timeline) await(ctx context.Context, what string, done func(snapshot) bool) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := t.look(ctx); err == nil && done(t.last) {
			return nil
		} else if err != nil {
			t.failure = err.Error() // the reason to show if it does not get better
		}
		select {
		case <-t.env.Context().Done():
			return context.Cause(t.env.Context())
		case <-ctx.Done():
			if t.failure != "" {
				return fmt.Errorf("waiting until %s: %w (%s)", what, context.Cause(ctx), t.failure)
			}
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// look takes a snapshot and prints what is new.
func (t *timeline) look(ctx context.Context) error {
	s, err := look(ctx, t.env)
	if err != nil {
		return err
	}
	t.last, t.failure = s, ""
	now := time.Now()
	for _, pod := range t.last.pods {
		if _, ok := t.pods[pod.UID]; !ok {
			t.pods[pod.UID] = now
		}
	}
	t.tellClasses()
	t.tellClaims()
	t.tellServers(ctx, now)
	t.tellNodes(now)
	t.tellPods(now)
	return nil
}

func (t *timeline) tellClasses() {
	for i := range t.last.classes {
		class := &t.last.classes[i]
		if class.StatusConditions().Root().IsTrue() && class.Status.Image() != nil {
			t.once("class/"+class.Name, "class", "%s is ready: image %s, zones %v, networks %v", class.Name, class.Status.Image().Name,
				class.Status.Zones, lo.Map(class.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.Name }))
		}
	}
}

func (t *timeline) tellServers(ctx context.Context, now time.Time) {
	present := sets.New[string]()
	for _, server := range t.last.servers {
		present.Insert(server.ID)
		if _, ok := t.servers[server.ID]; !ok {
			t.servers[server.ID] = now
			t.once("server/"+server.ID, "server", "%s launched: %s in %s%s%s", server.Name, server.FlavorName, server.ZoneName, t.price(ctx, server),
				t.sinceOldestPod(now))
		}
		t.known[server.ID] = server
		if server.Status == "ACTIVE" {
			t.once("active/"+server.ID, "server", "%s is active after %s", server.Name, seconds(now.Sub(t.servers[server.ID])))
		}
		if server.Status == "ERROR" {
			t.once("error/"+server.ID, "server", "%s is in ERROR: %s", server.Name, lo.FromPtr(server.Fault).Message)
		}
		if server.Truth != nil && server.Truth.Guest != nil && server.Truth.Guest.Reason != "" {
			t.once("guest/"+server.ID, "server", "%s booted but does not join: %s", server.Name, server.Truth.Guest.Reason)
		}
		if server.Truth != nil && server.Truth.Deleting {
			t.once("deleting/"+server.ID, "server", "%s is being deleted", server.Name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.known)) {
		if !present.Has(id) {
			t.once("gone/"+id, "server", "%s is gone with its disk and ports after %s", t.known[id].Name, seconds(now.Sub(t.servers[id])))
		}
	}
}

func (t *timeline) tellNodes(now time.Time) {
	present := sets.New[string]()
	for _, node := range t.last.nodes {
		present.Insert(node.Name)
		server, ok := lo.Find(t.last.servers, func(s cloud.Server) bool { return s.Name == node.Name })
		if ok && ready(node) {
			t.joined.Insert(node.Name)
			t.once("node/"+node.Name, "node", "%s joined %s after its launch", node.Name, seconds(now.Sub(t.servers[server.ID])))
		}
		if node.DeletionTimestamp != nil {
			t.once("drain/"+node.Name, "node", "%s is being drained", node.Name)
		}
	}
	for _, server := range t.known {
		if t.joined.Has(server.Name) && !present.Has(server.Name) {
			t.once("nodegone/"+server.Name, "node", "%s is gone", server.Name)
		}
	}
}

func (t *timeline) tellPods(now time.Time) {
	for _, pod := range t.last.pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		t.once("pod/"+string(pod.UID), "pod", "%s is bound to %s %s after it was created", pod.Name, pod.Spec.NodeName, seconds(now.Sub(t.pods[pod.UID])))
	}
}

func (t *timeline) tellClaims() {
	for i := range t.last.claims {
		claim := &t.last.claims[i]
		if c := claim.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason); c.IsTrue() {
			t.once("disrupt/"+claim.Name, "disrupt", "%s: %s", claim.Name, c.Reason)
		}
		if c := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched); c.IsUnknown() && c.Reason != "" && c.Reason != "AwaitingReconciliation" {
			t.once("launch/"+claim.Name+c.Reason, "claim", "%s is not launched yet: %s: %s", claim.Name, c.Reason, c.Message)
		}
	}
}

// price returns the price of the server, where the controller reports it.
func (t *timeline) price(ctx context.Context, server cloud.Server) string {
	o := offering{flavor: server.Flavor.Name, zone: server.ZoneName}
	if _, ok := t.prices[o]; !ok {
		if prices, err := readPrices(ctx, t.env.Controller().MetricsURL()); err == nil {
			t.prices = prices
		}
	}
	if price, ok := t.prices[o]; ok {
		return ", " + vnd(price) + "/hour"
	}
	return ""
}

// bill is what all servers cost together.
func (t *timeline) bill() string {
	var sum float64
	for _, server := range t.last.servers {
		sum += t.prices[offering{flavor: server.Flavor.Name, zone: server.ZoneName}]
	}
	return vnd(sum) + "/hour"
}

// sinceOldestPod is how long the oldest pod without a node has waited.
func (t *timeline) sinceOldestPod(now time.Time) string {
	waiting := lo.FilterMap(t.last.pods, func(p corev1.Pod, _ int) (time.Time, bool) { return t.pods[p.UID], p.Spec.NodeName == "" })
	if len(waiting) == 0 {
		return ""
	}
	return fmt.Sprintf(", %s after the pods were created", seconds(now.Sub(slices.MinFunc(waiting, time.Time.Compare))))
}

// nodeClassReady is the condition that the first NodeClass can be used.
func (t *timeline) nodeClassReady(s snapshot) bool {
	return len(s.classes) > 0 && s.classes[0].StatusConditions().Root().IsTrue()
}

// fill writes what was seen into the result.
func (t *timeline) fill(r *result) {
	if r.podsBound == 0 {
		r.podsBound = t.last.running()
	}
	r.nodesLaunched = t.joined.Len()
	r.serversLeft, r.volumesLeft, r.portsLeft = len(t.last.servers), t.last.volumes.Len(), t.last.ports.Len()
	r.nodesLeft, r.claimsLeft = len(t.last.nodes), len(t.last.claims)
}

func ready(node corev1.Node) bool {
	return lo.ContainsBy(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
