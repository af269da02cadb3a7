// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// This file stands in for bizfly-cloud-controller-manager.

const (
	// monitorPeriod is how often the real one reads the Nodes.
	monitorPeriod = 5 * time.Second

	providerIDPrefix = "bizflycloud://"
	taintShutdown    = "node.cloudprovider.kubernetes.io/shutdown"
)

// manage updates every Node.
func (g *Guests) manage(ctx context.Context, servers map[string]cloud.Server) error {
	nodes, err := g.listNodes(ctx)
	if err != nil {
		return err
	}
	g.listen(nodes, servers)
	now := g.cloud.Clock().Now()
	return each(ctx, nodes, func(ctx context.Context, node *corev1.Node) error {
		if node.Spec.ProviderID == "" {
			return g.initialize(ctx, node, servers)
		}
		id, ours := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix)
		if !ours {
			return nil
		}
		s, exists := servers[id]
		if !exists {
			if now.Before(g.forgetAt(node)) {
				return nil
			}
			return g.deleteNode(ctx, node)
		}
		if hasTaint(node, taintUninitialized) {
			return g.initialize(ctx, node, servers)
		}
		return g.markShutdown(ctx, node, s.Status == cloud.StatusShutoff)
	})
}

// listen notes since when Nodes are silent, because their servers do not run.
func (g *Guests) listen(nodes []*corev1.Node, servers map[string]cloud.Server) {
	now := g.cloud.Clock().Now()
	silent := map[types.UID]time.Time{}
	for _, node := range nodes {
		id, ours := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix)
		if !ours || servers[id].Status == cloud.StatusActive {
			continue
		}
		since, known := g.silent[node.UID]
		if !known {
			since = now
		}
		silent[node.UID] = since
	}
	g.silent = silent
}

// forgetAt is when the Node of a deleted server is deleted: at the first pass after it has been silent for long enough.
func (g *Guests) forgetAt(node *corev1.Node) time.Time {
	if g.opts.NodeSilence < 0 {
		return time.Time{}
	}
	at := g.silent[node.UID].Add(g.opts.NodeSilence)
	if look := at.Truncate(monitorPeriod); !look.Before(at) {
		return look
	}
	return at.Truncate(monitorPeriod).Add(monitorPeriod)
}

func (g *Guests) listNodes(ctx context.Context) ([]*corev1.Node, error) {
	if g.nodes != nil {
		return g.nodes.List(labels.Everything())
	}
	list, err := g.opts.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]*corev1.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return nodes, nil
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func withoutTaint(node *corev1.Node, key string) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == key })
}

// serverOf finds the server of a Node by its provider ID, else by its name, in upper or lower case. Of several
// with that name it is the one that runs.
func serverOf(node *corev1.Node, servers map[string]cloud.Server) (cloud.Server, bool) {
	if id, ours := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix); ours {
		s, found := servers[id]
		return s, found
	}
	var best cloud.Server
	for _, s := range servers {
		if strings.EqualFold(s.Name, node.Name) && (best.ID == "" || s.Status == cloud.StatusActive) {
			best = s
		}
	}
	return best, best.ID != ""
}

// initialize does what the uninitialized taint waits for.
func (g *Guests) initialize(ctx context.Context, node *corev1.Node, servers map[string]cloud.Server) error {
	s, found := serverOf(node, servers)
	if !found || !hasTaint(node, taintUninitialized) {
		return nil
	}
	nodes := g.opts.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || current.UID != node.UID || !hasTaint(current, taintUninitialized) {
			return err
		}
		current.Status.Addresses = addresses(s)
		current, err = nodes.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		current.Spec.ProviderID = providerIDPrefix + s.ID
		if current.Labels == nil {
			current.Labels = map[string]string{}
		}
		for key, value := range map[string]string{
			corev1.LabelInstanceTypeStable: s.Flavor.Name, corev1.LabelInstanceType: s.Flavor.Name,
			corev1.LabelTopologyZone: s.AvailabilityZone, corev1.LabelFailureDomainBetaZone: s.AvailabilityZone,
			corev1.LabelTopologyRegion: g.opts.Region, corev1.LabelFailureDomainBetaRegion: g.opts.Region,
		} {
			current.Labels[key] = value
		}
		current.Spec.Taints = withoutTaint(current, taintUninitialized)
		_, err = nodes.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	return ignoreNotFound(wrap(err, "initializing node %s", node.Name))
}

func addresses(s cloud.Server) []corev1.NodeAddress {
	list := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: s.Name}}
	for _, address := range s.IPAddresses.LAN {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.Addr})
	}
	for _, address := range s.IPAddresses.WANV4 {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: address.Addr})
	}
	return list
}

func (g *Guests) deleteNode(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp != nil {
		return nil // a finalizer of another component holds it
	}
	g.opts.Log.Info("the server of a node is gone", "node", node.Name)
	err := g.opts.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(node.UID)},
	})
	return ignoreNotFound(wrap(err, "deleting node %s", node.Name))
}

// markShutdown keeps the shutdown taint in step with the server.
func (g *Guests) markShutdown(ctx context.Context, node *corev1.Node, off bool) error {
	if hasTaint(node, taintShutdown) == off {
		return nil
	}
	nodes := g.opts.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || hasTaint(current, taintShutdown) == off {
			return err
		}
		current.Spec.Taints = withoutTaint(current, taintShutdown)
		if off {
			current.Spec.Taints = append(current.Spec.Taints, corev1.Taint{Key: taintShutdown, Effect: corev1.TaintEffectNoSchedule})
		}
		_, err = nodes.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	return ignoreNotFound(wrap(err, "marking node %s", node.Name))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
