// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Reasons of drift.
const (
	NodeClassDrift   cloudprovider.DriftReason = "NodeClassDrift"   // a field changed that cannot change on a running server
	ImageDrift       cloudprovider.DriftReason = "ImageDrift"       // new servers boot another image
	FlavorDrift      cloudprovider.DriftReason = "FlavorDrift"      // the server was resized outside Karpenter
	UserDataDrift    cloudprovider.DriftReason = "UserDataDrift"    // new servers get user data of other templates
	ZoneDrift        cloudprovider.DriftReason = "ZoneDrift"        // the server was moved to another zone
	NetworkDrift     cloudprovider.DriftReason = "NetworkDrift"     // new servers are in other VPC networks
	DiskDrift        cloudprovider.DriftReason = "DiskDrift"        // a disk was changed or detached outside Karpenter
	BillingPlanDrift cloudprovider.DriftReason = "BillingPlanDrift" // the billing plan of the server was changed
)

// IsDrifted compares the NodeClaim with its NodeClass, from caches alone: core asks on every event of every pod on the node.
// API errors never cause drift.
func (c *CloudProvider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("resolving the NodeClass: %w", err)
	}
	// Nodes of a zone that the user has closed stay: their replacements would be in other zones.
	if !replaceable(nodeClass) || slices.Contains(c.Settings.Load().ClosedZones, claim.Labels[corev1.LabelTopologyZone]) {
		return "", nil
	}
	found := c.drift(claim, nodeClass)
	if found.reason != "" {
		c.Recorder.Publish(events.ServerDrifted(claim, string(found.reason), found.got, found.wanted))
	}
	return found.reason, nil
}

// replaceable reports whether a replacement could be launched, and what it would be is known: a NodeClass that is being deleted,
// not ready, or whose last change was not resolved yet causes no drift.
func replaceable(nodeClass *v1alpha1.BizflyNodeClass) bool {
	// Not by the set of conditions, which is built for each call: this runs on every event of every pod.
	return nodeClass.DeletionTimestamp.IsZero() && slices.ContainsFunc(nodeClass.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == status.ConditionReady && condition.IsTrue() && condition.ObservedGeneration == nodeClass.Generation
	})
}

// drifted is what differs, described for users.
type drifted struct {
	reason      cloudprovider.DriftReason
	got, wanted string
}

func (c *CloudProvider) drift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) drifted {
	if staticDrift(claim, nodeClass) {
		return drifted{NodeClassDrift, "an earlier spec of BizflyNodeClass " + nodeClass.Name, "the current one"}
	}
	l := liveServer{CloudProvider: c, claim: claim, nodeClass: nodeClass, server: c.lastSeen(claim)}
	if found := l.image(); found.reason != "" || l.server == nil {
		return found
	}
	l.intent = intentOf(claim)
	for _, check := range serverChecks {
		if found := check(&l); found.reason != "" {
			return found
		}
	}
	return drifted{}
}

// staticDrift compares the hashes, if they are of one version: after an upgrade they are written anew first.
func staticDrift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) bool {
	wanted, got := nodeClass.Annotations, claim.Annotations
	version := wanted[v1alpha1.AnnotationNodeClassHashVersion]
	if version == "" || version != got[v1alpha1.AnnotationNodeClassHashVersion] {
		return false
	}
	wantedHash, gotHash := wanted[v1alpha1.AnnotationNodeClassHash], got[v1alpha1.AnnotationNodeClassHash]
	return wantedHash != "" && gotHash != "" && wantedHash != gotHash
}

// listing is an answer of the cloud to List.
type listing struct {
	at      time.Time
	servers map[string]*instance.Instance
	// interfaces is nil while they were never read; they may be older than the servers.
	interfaces *interfaces
}

// lastSeen returns the NodeClaim's server from the last list, nil when it is not in it or the list is old.
func (c *CloudProvider) lastSeen(claim *karpv1.NodeClaim) *instance.Instance {
	last := lo.FromPtr(c.listed.Load())
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok || c.Clock.Since(last.at) > ttl.ListedServers {
		return nil
	}
	return last.servers[id]
}

// interfaces are the private networks of servers, from one list of the network interfaces of the project.
type interfaces struct {
	at time.Time
	// networks are by server; all are those of any server.
	networks map[string][]string
	all      sets.Set[string]
}

// readInterfaces reads what the list of servers does not include. Where it cannot be read, what was read before is used until
// it is too old; then nothing is known, and nothing drifts.
func (c *CloudProvider) readInterfaces(ctx context.Context) *interfaces {
	ctx, cancel := context.WithTimeout(ctx, ttl.InterfacesRead)
	defer cancel()
	ports, err := c.Instances.Ports(ctx, ttl.PeriodicServers)
	if err != nil {
		log.FromContext(ctx).V(1).Info("the networks of servers are not compared for now", "error", err.Error())
		return lo.FromPtr(c.listed.Load()).interfaces
	}
	networks := networksOf(ports)
	return &interfaces{at: c.Clock.Now(), networks: networks, all: sets.New(lo.Flatten(lo.Values(networks))...)}
}

// seenInterfaces are those of the last list, nil when they are unknown or old.
func (c *CloudProvider) seenInterfaces() *interfaces {
	last := lo.FromPtr(c.listed.Load()).interfaces
	if last == nil || c.Clock.Since(last.at) > ttl.ListedServers {
		return nil
	}
	return last
}

// networksOf returns the private networks by server. A server with an interface that may be public or private is left out:
// taken for private, the public one of each server would be drift of all servers, and of their replacements too.
func networksOf(ports []instance.Port) map[string][]string {
	unknown := sets.New(lo.FilterMap(ports, func(p instance.Port, _ int) (string, bool) { return p.ServerID, !p.Public && !p.Private })...)
	networks := map[string][]string{}
	for _, p := range ports {
		if p.Private && p.NetworkID != "" && !unknown.Has(p.ServerID) {
			networks[p.ServerID] = lo.Union(networks[p.ServerID], []string{p.NetworkID})
		}
	}
	return networks
}

// liveServer is a server as it is, beside its launch intent and what new ones are.
//
// The intent is compared where a change of the NodeClass is detected by its hash: then an upgrade that changes a default
// replaces nothing, and only changes made outside Karpenter count. Values that the API does not return, or that are unknown to
// the catalog, have not drifted: a replacement would not differ, and be replaced indefinitely.
type liveServer struct {
	*CloudProvider
	claim     *karpv1.NodeClaim
	nodeClass *v1alpha1.BizflyNodeClass
	// server is nil when it is not in the last list.
	server *instance.Instance
	intent instance.Intent
}

// serverChecks are what is compared, in this order.
var serverChecks = []func(*liveServer) drifted{
	(*liveServer).userData, (*liveServer).flavor, (*liveServer).zone, (*liveServer).networks, (*liveServer).disks, (*liveServer).billingPlan,
}

// image compares the image of the server with that of new servers, while that is known.
func (l *liveServer) image() drifted {
	wanted, got := imageID(l.nodeClass), l.claim.Status.ImageID
	if l.server != nil {
		got = lo.CoalesceOrEmpty(l.server.ImageID, got)
	}
	if wanted == "" || got == "" || wanted == got {
		return drifted{}
	}
	return drifted{ImageDrift, "image " + got, "image " + wanted}
}

// userData compares the hashes of templates, where both are known. Templates that are in the NodeClass itself are part of
// its own hash too; those in a Secret are not.
func (l *liveServer) userData() drifted {
	got, wanted := l.server.UserDataHash, l.nodeClass.Status.UserDataHash
	if got == "" || wanted == "" || got == wanted {
		return drifted{}
	}
	return drifted{UserDataDrift, "user data of earlier templates", "user data of the current ones"}
}

// flavor compares the label by which pods were placed. The API also knows flavors by names without their family: only
// another flavor of the catalog is another flavor, and one that was delisted is none.
func (l *liveServer) flavor() drifted {
	wanted, got := l.claim.Labels[corev1.LabelInstanceTypeStable], l.server.Flavor
	if _, known := l.Flavors.Category(got); !known || wanted == "" || wanted == got || strings.HasSuffix(wanted, "."+got) {
		return drifted{}
	}
	return drifted{FlavorDrift, "flavor " + got, "flavor " + wanted}
}

// zone compares the label by which pods were placed.
func (l *liveServer) zone() drifted {
	wanted, got := l.claim.Labels[corev1.LabelTopologyZone], l.server.Zone
	if wanted == "" || wanted == got {
		return drifted{}
	}
	if snapshot, err := l.Catalog.Snapshot(); err != nil || !lo.ContainsBy(snapshot.Zones(), func(z catalog.Zone) bool { return z.Name == got }) {
		return drifted{}
	}
	return drifted{ZoneDrift, "zone " + got, "zone " + wanted}
}

// networks compares the networks of the server's interfaces with those that it was launched with. What the terms select later moves no
// server, since anyone in the project can create a network; only a change of the terms does, by the hash. An interface might name
// its network by another id than the list of networks does; that it does not is known when any interface of the project is in
// one of these networks.
func (l *liveServer) networks() drifted {
	wanted, seen := l.intent.Networks, l.seenInterfaces()
	if seen == nil || l.server.Status != instance.StatusActive || !seen.all.HasAny(wanted...) {
		return drifted{}
	}
	got := seen.networks[l.server.ID]
	if len(got) == 0 || lo.ElementsMatch(got, lo.Uniq(wanted)) || lo.ElementsMatch(got, deliveredOf(l.claim).Networks) {
		return drifted{}
	}
	return drifted{NetworkDrift, "networks " + strings.Join(got, ", "), "networks " + strings.Join(wanted, ", ")}
}

// disks compares the disks of the intent. Volumes of the block storage driver, and those that a user attached, are not
// compared.
func (l *liveServer) disks() drifted {
	root, ok := lo.Find(l.server.Volumes, func(v instance.Volume) bool { return v.Root })
	if !ok || len(l.intent.Disks) == 0 {
		return drifted{}
	}
	wanted, data := l.intent.Disks[0], l.intent.Disks[1:]
	if image := l.nodeClass.Status.Image(); image != nil {
		// If BizFly Cloud enlarged the disk to what its image needs, it would do so again.
		wanted.SizeGiB = max(wanted.SizeGiB, min(root.SizeGiB, int(image.MinDiskGiB)))
	}
	if !isDisk(root, wanted) && !deliveredOf(l.claim).same(root) {
		return drifted{DiskDrift, "root disk " + diskText(root), fmt.Sprintf("one of %d GiB, %s", wanted.SizeGiB, wanted.VolumeType)}
	}
	recorded := lo.Without(OwnedVolumes(l.claim), root.ID)
	if len(recorded) < len(data) {
		// The record was written when not all of them were listed.
		return drifted{}
	}
	attached := lo.Filter(l.server.Volumes, func(v instance.Volume, _ int) bool { return !v.Root && slices.Contains(recorded, v.ID) })
	if len(attached) < len(data) {
		return drifted{DiskDrift, fmt.Sprintf("%d of its data disks", len(attached)), strconv.Itoa(len(data))}
	}
	if len(attached) == len(data) && !sameDisks(attached, data) && !lo.EveryBy(attached, deliveredOf(l.claim).same) {
		return drifted{DiskDrift, "data disks " + strings.Join(lo.Map(attached, func(v instance.Volume, _ int) string { return diskText(v) }), ", "),
			"those of its launch"}
	}
	return drifted{}
}

// sameDisks reports whether each disk of the intent has a disk of its own.
func sameDisks(attached []instance.Volume, wanted []instance.Disk) bool {
	left := slices.Clone(attached)
	return lo.EveryBy(wanted, func(disk instance.Disk) bool {
		i := slices.IndexFunc(left, func(v instance.Volume) bool { return isDisk(v, disk) })
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	})
}

// isDisk reports whether a disk may be the one of the intent, as far as the API returns what it is.
func isDisk(v instance.Volume, wanted instance.Disk) bool {
	most := (wanted.SizeGiB + v1alpha1.DiskStepGiB - 1) / v1alpha1.DiskStepGiB * v1alpha1.DiskStepGiB
	medium := instance.MediumOf(wanted.VolumeType)
	return (v.SizeGiB == 0 || (v.SizeGiB >= wanted.SizeGiB && v.SizeGiB <= most)) &&
		(v.Medium == "" || medium == "" || v.Medium == medium)
}

func diskText(v instance.Volume) string { return fmt.Sprintf("of %d GiB, %s", v.SizeGiB, v.Medium) }

// billingPlan compares the billing plan of the server with that of the intent. A saving plan that has ended, or that a user has
// ended, is no drift: it would be prepaid once more for every server, which the user did not ask for.
func (l *liveServer) billingPlan() drifted {
	wanted, got := l.intent.BillingPlan, l.server.BillingPlan
	onDemand, savingPlan := bizfly.PlanWord(v1alpha1.BillingPlanOnDemand), bizfly.PlanWord(v1alpha1.BillingPlanSavingPlan)
	known := got == onDemand || got == savingPlan
	if wanted == "" || wanted == savingPlan || !known || wanted == got || got == deliveredOf(l.claim).BillingPlan {
		return drifted{}
	}
	return drifted{BillingPlanDrift, "billing plan " + got, "billing plan " + wanted}
}
