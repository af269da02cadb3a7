// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Entry is one thing that happened.
type Entry struct {
	// Time is zero for what is so now, and is not known since when.
	Time time.Time `json:"time,omitzero"`
	// From is its source: event, condition, annotation, BizFly Cloud, or the NodeClaim.
	From string `json:"from"`
	What string `json:"what"`
	// Problem is true for what went wrong.
	Problem bool `json:"problem,omitempty"`
}

// Life is the state and the timeline of a NodeClaim and its node.
type Life struct {
	NodeClaim string `json:"nodeClaim,omitempty"`
	Node      string `json:"node,omitempty"`
	Server    string `json:"server,omitempty"`
	// Now says where it stands, Disruption why it is replaced or why not.
	Now        string `json:"now"`
	Disruption string `json:"disruption"`
	// Help is what to look at next.
	Help     []string `json:"help,omitempty"`
	Timeline []Entry  `json:"timeline"`
}

// ForNodeClaim returns the timeline of a NodeClaim.
func ForNodeClaim(ctx context.Context, s *connect.Session, name string) (*Life, error) {
	claim := &karpv1.NodeClaim{}
	if err := s.Get(ctx, types.NamespacedName{Name: name}, claim); err != nil {
		return nil, fmt.Errorf("reading the NodeClaim: %w", err)
	}
	if claim.Status.NodeName == "" {
		return life(ctx, s, claim, nil), nil
	}
	node := &corev1.Node{}
	if err := s.Get(ctx, types.NamespacedName{Name: claim.Status.NodeName}, node); err != nil {
		s.Note("the node was not looked at: %s", err)
		node = nil
	}
	return life(ctx, s, claim, node), nil
}

// ForNode returns the timeline of a Node, and of its NodeClaim where Karpenter launched it.
func ForNode(ctx context.Context, s *connect.Session, name string) (*Life, error) {
	node := &corev1.Node{}
	if err := s.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, fmt.Errorf("reading the node: %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := s.List(ctx, claims); err != nil && !connect.IsMissing(err) {
		return nil, fmt.Errorf("whether Karpenter launched the node is not known: %w", err)
	}
	claim, ok := lo.Find(claims.Items, func(c karpv1.NodeClaim) bool {
		return c.Status.NodeName == node.Name || node.Spec.ProviderID != "" && c.Status.ProviderID == node.Spec.ProviderID
	})
	if !ok {
		return life(ctx, s, nil, node), nil
	}
	return life(ctx, s, &claim, node), nil
}

func life(ctx context.Context, s *connect.Session, claim *karpv1.NodeClaim, node *corev1.Node) *Life {
	l := &Life{}
	if claim != nil {
		l.NodeClaim = claim.Name
		l.fromClaim(claim)
		l.Timeline = append(l.Timeline, eventsOf(ctx, s, "NodeClaim", claim)...)
		l.Server, _ = providerid.Parse(claim.Status.ProviderID)
	}
	if node != nil {
		l.Node = node.Name
		l.add(node.CreationTimestamp.Time, "node", "the node joined the cluster", false)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				l.add(condition.LastTransitionTime.Time, "node", fmt.Sprintf("Ready is %s: %s", condition.Status,
					condition.Message),
					condition.Status != corev1.ConditionTrue)
			}
		}
		l.Timeline = append(l.Timeline, eventsOf(ctx, s, "Node", node)...)
		if id, ok := providerid.Parse(node.Spec.ProviderID); ok {
			l.Server = id
		}
	}
	l.fromCloud(ctx, s)
	slices.SortStableFunc(l.Timeline, byTime)
	l.Now, l.Help = now(claim, node), help(ctx, s, claim, l.Server)
	l.Disruption = disruption(ctx, s, claim, node)
	return l
}

// help says where to look while a server does not join. The reason is on its console alone, and no call of BizFly
// Cloud's API is known that returns what a server has printed there.
func help(ctx context.Context, s *connect.Session, claim *karpv1.NodeClaim, server string) []string {
	if claim == nil || server == "" || claim.DeletionTimestamp != nil {
		return nil
	}
	launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
	registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
	if !launched.IsTrue() || registered.IsTrue() {
		return nil
	}
	until := claim.CreationTimestamp.Add(ttl.Registration).Local()
	look := []string{fmt.Sprintf("look at server %s in BizFly Cloud's console before %s, when Karpenter deletes it: "+
		"its page shows what it printed while it booted, where its user data or its kubelet report why it does not "+
		"join (no API call is known that returns it)", server, until.Format(time.TimeOnly))}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := s.Get(ctx, types.NamespacedName{Name: lo.FromPtr(claim.Spec.NodeClassRef).Name}, nodeClass); err != nil {
		return look
	}
	// The controller's notes on user data, such as an argument that the kubelet does not know.
	if notes := nodeClass.StatusConditions().Get(v1alpha1.ConditionTypeBootstrapReady).Message; notes != "" {
		look = append(look, fmt.Sprintf("see what BizflyNodeClass %s says of its user data: %s", nodeClass.Name, notes))
	}
	return look
}

func (l *Life) add(at time.Time, from, what string, problem bool) {
	l.Timeline = append(l.Timeline, Entry{Time: at, From: from, What: what, Problem: problem})
}

// fromClaim reads what the NodeClaim itself records.
func (l *Life) fromClaim(claim *karpv1.NodeClaim) {
	l.add(claim.CreationTimestamp.Time, "NodeClaim", fmt.Sprintf("created for NodePool %s",
		lo.CoalesceOrEmpty(claim.Labels[karpv1.NodePoolLabelKey], "(none)")),
		false)
	intent := instance.Intent{}
	if text := claim.Annotations[v1alpha1.AnnotationLaunchIntent]; text != "" && json.Unmarshal([]byte(text),
		&intent) == nil {
		l.add(intent.RequestedAt, "annotation", fmt.Sprintf("create request %d for a %s in %s as %s (task %s)",
			intent.Attempt, intent.Flavor, intent.Zone,
			intent.Name, lo.CoalesceOrEmpty(intent.TaskID, "not named yet")), intent.Rejected)
	}
	for _, condition := range claim.Status.Conditions {
		if condition.Type == "Ready" {
			continue
		}
		what := fmt.Sprintf("%s is %s", condition.Type, condition.Status)
		if condition.Message != "" && !condition.IsTrue() {
			what += ": " + condition.Message
		}
		l.add(condition.LastTransitionTime.Time, "condition", what, condition.IsFalse())
	}
	if claim.DeletionTimestamp != nil {
		l.add(claim.DeletionTimestamp.Time, "NodeClaim", "its deletion began", false)
	}
}

// fromCloud adds what BizFly Cloud reports for the server.
func (l *Life) fromCloud(ctx context.Context, s *connect.Session) {
	if l.Server == "" {
		return
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		s.Note("the server was not looked at: %s", err)
		return
	}
	server, err := cloud.API.GetServer(ctx, l.Server)
	if err != nil {
		l.add(time.Time{}, "BizFly Cloud", fmt.Sprintf("server %s: %s", l.Server, err), true)
		return
	}
	if created, err := time.Parse(time.RFC3339, server.CreatedAt); err == nil {
		l.add(created, "BizFly Cloud", fmt.Sprintf("server %s was created as %s", server.ID, server.Name), false)
	}
	// The cloud does not say since when.
	l.add(time.Time{}, "BizFly Cloud", fmt.Sprintf("server %s is %s", server.ID, server.Status),
		server.Status == instance.StatusError)
}

// now is the state of the node in one sentence.
func now(claim *karpv1.NodeClaim, node *corev1.Node) string {
	if claim == nil {
		return "Karpenter did not launch this node, so it does not manage it"
	}
	if claim.DeletionTimestamp != nil {
		return fmt.Sprintf("it is being deleted since %s", claim.DeletionTimestamp.Local().Format(time.DateTime))
	}
	for _, step := range []struct{ condition, waiting string }{
		{karpv1.ConditionTypeLaunched, "it waits for BizFly Cloud to launch the server"},
		{karpv1.ConditionTypeRegistered, "the server is launched, and its node has not joined the cluster yet"},
		{karpv1.ConditionTypeInitialized, "the node has joined, and is not initialized yet (readiness, startup taints or " +
			"extended resources)"},
	} {
		if condition := claim.StatusConditions().Get(step.condition); !condition.IsTrue() {
			return strings.TrimSuffix(step.waiting+": "+lo.FromPtr(condition).Message, ": ")
		}
	}
	if node == nil {
		return "it is initialized, and its node could not be read"
	}
	return nowOf[top.StatusOf(node)]
}

// nowOf says in a sentence what top says in a word.
var nowOf = map[string]string{
	"Ready": "it runs", "NotReady": "its node is not ready", "Cordoned": "it is cordoned",
	"Replacing": "Karpenter has chosen it for disruption; its pods stay until its replacement is ready",
	"Draining":  "its pods are being evicted",
	top.Deleted: "its server is deleted, and a finalizer holds the Node",
}

// eventsOf returns the events of an object, the oldest first.
func eventsOf(ctx context.Context, s *connect.Session, kind string, object client.Object) []Entry {
	list := &corev1.EventList{}
	selector := client.MatchingFields{"involvedObject.name": object.GetName(), "involvedObject.kind": kind}
	// Those of an object without a namespace are in default; elsewhere they may be forged by anyone who may write there.
	namespace := client.InNamespace(lo.CoalesceOrEmpty(object.GetNamespace(), metav1.NamespaceDefault))
	if err := s.List(ctx, list, namespace, selector); err != nil {
		s.Note("events were not looked at: %s", err)
		return nil
	}
	entries := lo.FilterMap(list.Items, func(event corev1.Event, _ int) (Entry, bool) {
		same := event.InvolvedObject.UID == object.GetUID() || event.InvolvedObject.UID == "" || kind == "Node"
		return Entry{Time: lastSeen(&event), From: "event", What: event.Reason + ": " + event.Message,
			Problem: event.Type == corev1.EventTypeWarning}, same
	})
	slices.SortStableFunc(entries, byTime)
	return entries
}

// byTime puts what happened last, and what is so now, at the end.
func byTime(a, b Entry) int {
	if a.Time.IsZero() != b.Time.IsZero() {
		return lo.Ternary(a.Time.IsZero(), 1, -1)
	}
	return a.Time.Compare(b.Time)
}

func lastSeen(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return lo.Ternary(event.LastTimestamp.IsZero(), lo.Ternary(event.EventTime.IsZero(), event.CreationTimestamp.Time,
		event.EventTime.Time),
		event.LastTimestamp.Time)
}

// disruption says what marks the node for its end, and why it is still there, which is the reason of top --idle.
func disruption(ctx context.Context, s *connect.Session, claim *karpv1.NodeClaim, node *corev1.Node) string {
	r := newReading(s)
	cluster, facts, err := factsOf(ctx, r)
	if err != nil {
		return "not known: " + err.Error()
	}
	row, _ := lo.Find(cluster.Nodes, func(n top.Node) bool { return n.Object != nil && n.Name == lo.FromPtr(node).Name })
	row.Object, row.Claim = node, claim
	row.NodePool = lo.CoalesceOrEmpty(row.NodePool, lo.FromPtr(claim).Labels[karpv1.NodePoolLabelKey])
	f := facts(row)
	var parts []string
	lives := lo.FromPtr(claim).Spec.ExpireAfter.Duration
	if lives != nil && f.Since(claim.CreationTimestamp.Time) >= *lives {
		parts = append(parts, fmt.Sprintf("it has expired at %s (expireAfter): Karpenter deletes it, which no budget of the "+
			"NodePool and no %s annotation prevents", claim.CreationTimestamp.Add(*lives).Local().Format(time.DateTime),
			karpv1.DoNotDisruptAnnotationKey))
		if !f.deleting() {
			return parts[0]
		}
	}
	rule, why := reasonFor(ctx, r, f)
	if drifted := f.drifted(); drifted != "" && rule.code != "Drifted" {
		parts = append(parts, "it has drifted and is to be replaced: "+drifted)
	}
	return strings.Join(append(parts, rule.what+": "+why.detail), "; ")
}
