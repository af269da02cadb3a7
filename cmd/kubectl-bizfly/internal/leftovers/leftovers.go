// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leftovers finds what was launched for this cluster and is still in the project, and deletes it. What is this cluster's, and which disks
// go with a server, the controller's own code decides.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Item is a server, a disk or an address.
type Item struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name"`
	// Kept is why it is not deleted, and what to do; empty where it is.
	Kept string `json:"kept,omitempty"`

	remove func(ctx context.Context) error
}

// Found is what is left of a cluster in a project.
type Found struct {
	Cluster string       `json:"cluster"`
	Scope   bizfly.Scope `json:"scope"`
	Items   []Item       `json:"items"`
}

// Deletable are the items that are deleted.
func (f *Found) Deletable() []Item {
	return lo.Filter(f.Items, func(i Item, _ int) bool { return i.Kept == "" })
}

// Delete requests the deletion of all that is not kept.
func (f *Found) Delete(ctx context.Context) error {
	return errors.Join(lo.Map(f.Deletable(), func(i Item, _ int) error { return i.remove(ctx) })...)
}

// where returns the project in which the servers of this cluster are, and nothing found yet.
func where(ctx context.Context, s *connect.Session) (*Found, *connect.Cloud, error) {
	system := &corev1.Namespace{}
	if err := s.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, nil, fmt.Errorf("the UID of the cluster is not known, by which its servers are: %w", err)
	}
	cloud, err := s.Login(ctx)
	if err != nil {
		return nil, nil, err
	}
	object := &v1alpha1.ProviderConfig{}
	err = s.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object)
	if client.IgnoreNotFound(err) != nil && !connect.IsMissing(err) {
		return nil, nil, fmt.Errorf("in which project the servers of this cluster are is not known: %w", err)
	}
	if err := cloud.Elsewhere(*object); err != nil {
		return nil, nil, err
	}
	return &Found{Cluster: string(system.UID), Scope: cloud.Scope, Items: []Item{}}, cloud, nil
}

// Find lists what no NodeClaim accounts for. Servers are read before NodeClaims: a server that is listed was launched for one that existed before.
func Find(ctx context.Context, s *connect.Session) (*Found, error) {
	found, cloud, err := where(ctx, s)
	if err != nil {
		return nil, err
	}
	dependencies := cloud.Over(nil)
	dependencies.ClusterUID = found.Cluster
	instances := wiring.Build(dependencies).Instances
	servers, err := instances.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	disks, err := instances.Leftovers(ctx)
	if err != nil {
		return nil, err
	}
	addresses, err := cloud.API.ListNetworkInterfaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	l := &look{found: found, instances: instances}
	if err := l.readCluster(ctx, s); err != nil {
		return nil, err
	}
	for _, server := range servers.All() {
		l.server(server)
	}
	for _, disk := range disks {
		l.disk(disk)
	}
	for _, port := range addresses {
		if instance.ProvenName(found.Cluster, port.Name) != "" && bizfly.UsedBy(port) == "" {
			l.add("address", port.ID, port.Name, "no server uses it; to delete it: bizfly wan-ip delete "+port.ID, nil)
		}
	}
	return found, nil
}

// look is what tells whose a server or a disk is.
type look struct {
	found     *Found
	instances *instance.DefaultProvider
	claims    []karpv1.NodeClaim
	nodes     []corev1.Node
	volumes   []corev1.PersistentVolume
	// unsure is why nothing may be deleted: a PersistentVolume keeps its disk, and the servers that no NodeClaim of a clone accounts for are those of
	// the original.
	unsure error
}

// readCluster reads what the cluster says of its servers and disks.
func (l *look) readCluster(ctx context.Context, s *connect.Session) error {
	claims, nodes, volumes := &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PersistentVolumeList{}
	if err := s.List(ctx, claims); err != nil && !connect.IsMissing(err) {
		return err
	}
	if err := s.List(ctx, nodes); err != nil {
		return err
	}
	if err := s.List(ctx, volumes); err != nil {
		l.unsure = fmt.Errorf("which disks PersistentVolumes own is not known: %w", err)
	}
	l.claims, l.nodes, l.volumes = claims.Items, nodes.Items, volumes.Items
	// Where a control plane is replaced node by node, nobody records that once the controller is gone.
	err := config.NewDefaultProvider(config.Options{Reader: s.Cluster}).CheckControlPlane(ctx)
	if err != nil && !errors.Is(err, config.ErrAPIServersChanging) && !meta.IsNoMatchError(err) {
		l.unsure = err
	}
	return nil
}

func (l *look) claimed(is func(karpv1.NodeClaim) bool) bool { return lo.ContainsBy(l.claims, is) }

func (l *look) add(kind, id, name, kept string, remove func(context.Context) error) {
	if l.unsure != nil && kept == "" {
		kept = l.unsure.Error()
	}
	l.found.Items = append(l.found.Items, Item{kind, id, name, kept, remove})
}

func (l *look) server(server *instance.Instance) {
	id := providerid.New(server.ID)
	node, registered := lo.Find(l.nodes, func(n corev1.Node) bool { return n.Spec.ProviderID == id })
	kept := ""
	switch {
	case server.ClusterUID != l.found.Cluster || server.Deleting() || l.claimed(func(c karpv1.NodeClaim) bool {
		return string(c.UID) == server.NodeClaimUID || c.Status.ProviderID == id
	}):
		return
	case !server.NameProven:
		kept = "its name does not prove that Karpenter launched it, so it may be a copy; if it is not: bizfly server delete " + server.ID
	case registered:
		kept = fmt.Sprintf("node %s is still in the cluster; first: kubectl drain %s --ignore-daemonsets, kubectl delete node %s", node.Name, node.Name, node.Name)
	}
	l.add("server", server.ID, server.Name, kept, func(ctx context.Context) error {
		return l.instances.Delete(ctx, instance.DeleteRequest{ID: server.ID, Since: time.Now()})
	})
}

func (l *look) disk(disk instance.Leftover) {
	if !l.claimed(func(c karpv1.NodeClaim) bool {
		return strings.Contains(c.Annotations[v1alpha1.AnnotationLaunchIntent], disk.Server)
	}) {
		kept := lo.Ternary(disk.Kept == "", "", disk.Kept+"; if not: bizfly volume delete "+disk.ID)
		if owner, owned := lo.Find(l.volumes, func(v corev1.PersistentVolume) bool { return v.Spec.CSI != nil && v.Spec.CSI.VolumeHandle == disk.ID }); owned {
			kept = "PersistentVolume " + owner.Name + " names it"
		}
		l.add("disk", disk.ID, disk.Name, kept, func(ctx context.Context) error { return l.instances.DeleteLeftover(ctx, disk) })
	}
}
