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
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Reasons of drift.
const (
	// NodeClassDrift says that a field of the NodeClass changed that cannot change on a running server.
	NodeClassDrift cloudprovider.DriftReason = "NodeClassDrift"
	// ImageDrift says that new servers boot another image.
	ImageDrift cloudprovider.DriftReason = "ImageDrift"
	// FlavorDrift says that the server was resized behind our back.
	FlavorDrift cloudprovider.DriftReason = "FlavorDrift"
	// UserDataDrift says that the templates of user data are others than those that the server was launched with.
	UserDataDrift cloudprovider.DriftReason = "UserDataDrift"
	// ZoneDrift says that the server was moved to another zone.
	ZoneDrift cloudprovider.DriftReason = "ZoneDrift"
	// NetworkDrift says that the server is in other VPC networks than new servers are.
	NetworkDrift cloudprovider.DriftReason = "NetworkDrift"
	// DiskDrift says that a disk of the server was changed or taken off it behind our back.
	DiskDrift cloudprovider.DriftReason = "DiskDrift"
	// BillingPlanDrift says that the server is paid for otherwise than it was ordered.
	BillingPlanDrift cloudprovider.DriftReason = "BillingPlanDrift"
)

// listingMaxAge is how old the last list may be to be believed by drift. Core lists every two minutes.
const listingMaxAge = 10 * time.Minute

// IsDrifted compares the claim with its NodeClass, from caches alone: core asks on every event of every pod on the node.
// What cannot be read has not drifted.
func (c *CloudProvider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("resolving the NodeClass: %w", err)
	}
	if !replaceable(nodeClass) {
		return "", nil
	}
	found := c.drift(claim, nodeClass)
	if found.reason != "" {
		c.recorder.Publish(events.ServerDrifted(claim, string(found.reason), found.got, found.wanted))
	}
	return found.reason, nil
}

// replaceable says that a replacement could be launched, and that what it would be is known: a NodeClass that is going, not
// ready, or whose last change was not resolved yet rolls nothing.
func replaceable(nodeClass *v1alpha1.BizflyNodeClass) bool {
	// Not by the set of conditions, which is made anew for each question: this is asked on every event of every pod.
	return nodeClass.DeletionTimestamp.IsZero() && slices.ContainsFunc(nodeClass.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == status.ConditionReady && condition.IsTrue() && condition.ObservedGeneration == nodeClass.Generation
	})
}

// drifted is what differs, with the words for people.
type drifted struct {
	reason      cloudprovider.DriftReason
	got, wanted string
}

func (c *CloudProvider) drift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) drifted {
	if staticDrift(claim, nodeClass) {
		return drifted{NodeClassDrift, "an earlier spec of BizflyNodeClass " + nodeClass.Name, "the present one"}
	}
	server := c.lastSeen(claim)
	if got, drift := imageDrift(claim, nodeClass, server); drift {
		return drifted{ImageDrift, "image " + got, "image " + imageID(nodeClass)}
	}
	if server == nil {
		return drifted{}
	}
	l := c.live(claim, nodeClass, server)
	for _, check := range serverChecks {
		if found := check(&l); found.reason != "" {
			return found
		}
	}
	return drifted{}
}

// staticDrift compares the hashes, if they are of one version: after an upgrade they are re-stamped first.
func staticDrift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) bool {
	wanted, got := nodeClass.Annotations, claim.Annotations
	version := wanted[v1alpha1.AnnotationNodeClassHashVersion]
	if version == "" || version != got[v1alpha1.AnnotationNodeClassHashVersion] {
		return false
	}
	wantedHash, gotHash := wanted[v1alpha1.AnnotationNodeClassHash], got[v1alpha1.AnnotationNodeClassHash]
	return wantedHash != "" && gotHash != "" && wantedHash != gotHash
}

// imageDrift compares what the server was made from with what new servers boot, while that is known.
func imageDrift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass, server *instance.Instance) (string, bool) {
	wanted, got := imageID(nodeClass), claim.Status.ImageID
	if server != nil && server.ImageID != "" {
		got = server.ImageID
	}
	return got, wanted != "" && got != "" && wanted != got
}

// lastSeen returns the claim's server from the last list, nil when it is not there or the list is old.
func (c *CloudProvider) lastSeen(claim *karpv1.NodeClaim) *instance.Instance {
	last := c.listed.Load()
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if last == nil || !ok || c.clock.Since(last.at) > listingMaxAge {
		return nil
	}
	return last.servers[id]
}
