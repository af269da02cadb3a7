// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Reasons of drift.
const (
	NodeClassDrift cloudprovider.DriftReason = "NodeClassDrift" // a field changed that cannot change on a running server
	ImageDrift     cloudprovider.DriftReason = "ImageDrift"     // new servers boot another image
	FlavorDrift    cloudprovider.DriftReason = "FlavorDrift"    // the server was resized outside Karpenter
	UserDataDrift  cloudprovider.DriftReason = "UserDataDrift"  // new servers get user data of other templates
	NetworkDrift   cloudprovider.DriftReason = "NetworkDrift"   // new servers are in other VPC networks
)

// IsDrifted compares the NodeClaim with its NodeClass, from caches alone: core asks on every event of every pod on the
// node. API errors never cause drift.
func (c *CloudProvider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		return "", client.IgnoreNotFound(fmt.Errorf("resolving the NodeClass: %w", err))
	}
	// One that is being deleted, not ready, or whose last change was not resolved yet changes no server.
	if !nodeClass.DeletionTimestamp.IsZero() || !v1alpha1.Resolved(nodeClass, status.ConditionReady) {
		return "", nil
	}
	found := c.drift(claim, nodeClass)
	if found.reason != "" && !c.replaceable(ctx, claim, nodeClass) {
		return "", nil
	}
	if found.reason != "" {
		c.config.Recorder.Publish(events.ServerDrifted(claim, string(found.reason), found.got, found.wanted))
	}
	return found.reason, nil
}

// replaceable reports whether a drifted node can be replaced now. Core looks for an offering first, but not for a
// static NodePool: it would create a NodeClaim that ends at once, again and again, and schedule nothing for anyone
// meanwhile (kubernetes-sigs/karpenter#3198).
func (c *CloudProvider) replaceable(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) bool {
	pool := &karpv1.NodePool{}
	name := client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}
	if err := c.config.KubeClient.Get(ctx, name, pool); err != nil || pool.Spec.Replicas == nil {
		return true
	}
	types, err := c.config.Flavors.List(ctx, nodeClass)
	return err == nil && flavor.CanLaunch(ctx, pool, types)
}

// drifted is what differs, described for users.
type drifted struct {
	reason      cloudprovider.DriftReason
	got, wanted string
}

func (c *CloudProvider) drift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) drifted {
	if launch.SpecChanged(claim, nodeClass) {
		return drifted{NodeClassDrift, "an earlier spec of BizflyNodeClass " + nodeClass.Name, "the current one"}
	}
	l := liveServer{flavors: c.config.Flavors, claim: claim, nodeClass: nodeClass}
	if servers, ports := c.config.Instances.Last(ttl.ListedServers); servers != nil {
		id, _ := providerid.Parse(claim.Status.ProviderID)
		l.server, l.ports = servers.Get(id), ports
	}
	if found := l.image(); found.reason != "" || l.server == nil {
		return found
	}
	for _, check := range serverChecks {
		if found := check(&l); found.reason != "" {
			return found
		}
	}
	return drifted{}
}

// liveServer is a server as it is, beside what was delivered and what new ones are.
//
// Values that the API does not return, or that are unknown to the catalog, have not drifted: a replacement would not
// differ, and be replaced indefinitely. Disks, the zone and the billing plan are not compared: who enlarges a disk or
// buys a plan for a running server wants to keep that server.
type liveServer struct {
	flavors   *flavor.DefaultProvider
	claim     *karpv1.NodeClaim
	nodeClass *v1alpha1.BizflyNodeClass
	// server is nil when it is not in the last list.
	server *instance.Instance
	// ports is nil when no list of network interfaces is young enough.
	ports *instance.Ports
}

// serverChecks are what is compared, in this order.
var serverChecks = []func(*liveServer) drifted{
	(*liveServer).userData, (*liveServer).flavor, (*liveServer).networks,
}

// image compares the image of the server with that of new servers, while that is known.
func (l *liveServer) image() drifted {
	wanted, got := l.nodeClass.Status.ImageID(), l.claim.Status.ImageID
	if l.server != nil {
		got = lo.CoalesceOrEmpty(l.server.ImageID, got)
	}
	if wanted == "" || got == "" || wanted == got {
		return drifted{}
	}
	return drifted{ImageDrift, "image " + got, "image " + wanted}
}

// userData compares the hashes of templates, where both are known. Templates that are in the NodeClass itself are part
// of its own hash too; those in a Secret are not.
func (l *liveServer) userData() drifted {
	got, wanted := l.server.UserDataHash, l.nodeClass.Status.UserDataHash
	if got == "" || wanted == "" || got == wanted {
		return drifted{}
	}
	return drifted{UserDataDrift, "user data of earlier templates", "user data of the current ones"}
}

// flavor compares the label by which pods were placed. The API also knows flavors by names without their family, before
// it or behind it: only another flavor of the catalog is another flavor, and one that was delisted is none.
func (l *liveServer) flavor() drifted {
	wanted, got := l.claim.Labels[corev1.LabelInstanceTypeStable], l.server.Flavor
	if _, known := l.flavors.Category(got); !known || wanted == "" || wanted == got ||
		strings.HasSuffix(wanted, "."+got) || strings.HasPrefix(wanted, got+"_") {
		return drifted{}
	}
	return drifted{FlavorDrift, "flavor " + got, "flavor " + wanted}
}

// networks compares the networks of the server's interfaces with those that it was launched with, and with those of its
// first interfaces that were listed. What the terms select later moves no server, since anyone in the project can
// create a network; only a change of the terms does, by the hash. A network that is missing is no drift: a list lacks
// an interface for a moment, and core acts on that for minutes.
func (l *liveServer) networks() drifted {
	if l.ports == nil || l.server.Status != instance.StatusActive {
		return drifted{}
	}
	got, wanted := l.ports.Networks(l.server.ID), launch.IntentOf(l.claim).Networks
	if len(wanted) == 0 || lo.Every(append(launch.DeliveredOf(l.claim).Networks, wanted...), got) {
		return drifted{}
	}
	return drifted{NetworkDrift, "networks " + strings.Join(got, ", "), "networks " + strings.Join(wanted, ", ")}
}
