// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Intent returns what a launch is to be recorded as.
func (p *DefaultProvider) Intent(request *LaunchRequest) (Intent, error) {
	switch {
	case p.cluster.uid == "":
		return Intent{}, errNoClusterUID
	case request.NodeClass.Status.ImageID() == "":
		return Intent{}, errors.New("a launch needs a NodeClass whose image has been found")
	}
	disks, err := p.disks(request)
	if err != nil {
		return Intent{}, err
	}
	status := request.NodeClass.Status
	return Intent{
		Attempt:     request.Attempt,
		Name:        Name(request.NodeClaim.Name, string(request.NodeClaim.UID), p.cluster.uid, request.Attempt),
		Flavor:      request.Flavor,
		Zone:        request.Zone,
		BillingPlan: request.BillingPlan,
		ImageID:     status.ImageID(),
		Disks:       disks,
		Networks:    lo.Map(status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID }),
		Firewalls:   lo.Map(status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID }),
		RequestedAt: p.clock.Now(),
	}, nil
}

// Launch sends the create request of a recorded intent and waits, bounded, for the id of its server.
func (p *DefaultProvider) Launch(ctx context.Context, request *LaunchRequest,
	intent Intent) (*Instance, Intent, error) {
	sent := p.forms.formFor(request.Flavor, request.place())
	create, err := p.createRequest(ctx, request, intent, sent)
	if err != nil {
		intent.Rejected = true
		return nil, intent, fmt.Errorf("%w: server %s: %w", ErrNotPrepared, intent.Name, err)
	}
	intent.TaskID, err = p.api.CreateServer(ctx, create)
	// The wait for admission, which can be long, does not count: the visibility window begins with the answer.
	intent.RequestedAt, intent.Forms = p.clock.Now(), sent.forms()
	if err != nil && rejected(err) {
		count(outcomeRejected)
		intent.Rejected = true
		return nil, intent, fmt.Errorf("creating server %s (%s in %s): %w", intent.Name, intent.Flavor, intent.Zone,
			p.formRejected(ctx, sent, request, err))
	}
	if err != nil {
		// A server may be on its way; only looking for it shows whether it is.
		log.FromContext(ctx).Error(err, "no readable answer to a create request, looking for its server", "server",
			intent.Name)
	}
	server, err := p.await(ctx, &pending{nodeClaimUID: string(request.NodeClaim.UID), intent: intent})
	// What a server came of was understood.
	if server == nil && errors.Is(err, ErrBuildFailed) {
		err = p.formRejected(ctx, sent, request, err)
	}
	return server, intent, err
}

// place is what a rejection of the request counts for.
func (r *LaunchRequest) place() place {
	_, family := shortName(r.Flavor)
	return place{capacity.NodeClassKey(r.NodeClass), r.Zone, family}
}

// formRejected returns the error as ErrFormRejected where the same launch may succeed in another form, which is then
// the next one to send.
func (p *DefaultProvider) formRejected(ctx context.Context, sent spelling, request *LaunchRequest, err error) error {
	if !p.forms.moveOn(sent, request.Flavor, request.place(), err, p.clock.Now()) {
		return err
	}
	log.FromContext(ctx).Info("the cloud rejected the form of a create request, trying another", "flavor", request.Flavor,
		"error", err.Error())
	return fmt.Errorf("%w: %w", ErrFormRejected, err)
}

// Resume finds the server of an earlier create request and waits for it like Launch.
func (p *DefaultProvider) Resume(ctx context.Context, nodeClaimUID string, intent Intent) (*Instance, error) {
	if p.cluster.uid == "" {
		return nil, errNoClusterUID
	}
	return p.await(ctx, &pending{nodeClaimUID: nodeClaimUID, intent: intent, resumed: true})
}

// Forms are the forms in which create requests are sent.
func (p *DefaultProvider) Forms() *Forms { return &p.forms }

// Doubted reports whether names of old flavors were rejected for the NodeClass not long ago, and none of the flavor's
// family has been accepted.
func (p *DefaultProvider) Doubted(flavor string, nodeClass *v1alpha1.BizflyNodeClass) bool {
	return p.forms.isDoubted(flavor, capacity.NodeClassKey(nodeClass), p.clock.Now())
}

// FailureReason returns why the server of a create request failed.
func (p *DefaultProvider) FailureReason(ctx context.Context, intent Intent) error {
	if intent.TaskID != "" {
		task, err := p.api.GetTask(ctx, intent.TaskID)
		if err != nil {
			// Why the task cannot be read is not why the server failed: its class is dropped.
			return unexplained(intent, "its task cannot be read: "+err.Error())
		}
		if task.Failure != nil {
			return task.Failure
		}
	}
	return unexplained(intent, "the cloud gives no reason")
}

// unexplained is the failure of a server for which the cloud gives no reason. It has no class, so it marks nothing.
func unexplained(intent Intent, reason string) error {
	return &bizfly.APIError{Operation: "CreateServer", Class: bizfly.ClassUnknown,
		Message: fmt.Sprintf("server %s failed: %s", intent.Name, reason)}
}

// await waits for the server of a create request and acts on its outcome. ErrBuildFailed comes with the server that has
// failed, where there is one.
func (p *DefaultProvider) await(ctx context.Context, request *pending) (*Instance, error) {
	intent := request.intent
	found, err := p.awaitOutcome(ctx, request)
	if err != nil {
		return nil, err
	}
	cause := found.cause(intent)
	switch {
	case cause != nil:
		count(outcomeFailed)
		p.cleanUp(ctx, intent, found.server)
		return found.server, fmt.Errorf("%w %s (%s in %s): %w", ErrBuildFailed, intent.Name, intent.Flavor, intent.Zone,
			cause)
	case found.server == nil:
		count(outcomeUnknown)
		return nil, fmt.Errorf("%w: %s, requested at %s", ErrOutcomeUnknown, intent.Name,
			intent.RequestedAt.Format(time.RFC3339))
	}
	count(outcomeLaunched)
	p.forms.Restore(intent.Forms)
	launchSeconds.Observe(p.clock.Since(intent.RequestedAt).Seconds(),
		map[string]string{labelFlavor: intent.Flavor, labelZone: intent.Zone})
	return found.server, nil
}

// cleanUp begins to delete what a failed create request has left. It never keeps the caller from trying the next
// offering: garbage collection finds what is left.
func (p *DefaultProvider) cleanUp(ctx context.Context, intent Intent, server *Instance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl.LaunchCleanup)
	defer cancel()
	var err error
	if server != nil {
		err = p.Delete(ctx, DeleteRequest{ID: server.ID})
	} else {
		err = p.deleteFailedLaunch(ctx, intent.Name)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		log.FromContext(ctx).Error(err, "cleaning up after a failed launch, garbage collection tries again", "server",
			intent.Name)
	}
}

// rejected reports whether the cloud is known to have built nothing. Whatever the adapter does not vouch for is
// ambiguous.
func rejected(err error) bool {
	var apiError *bizfly.APIError
	return bizfly.IsNotSent(err) || (errors.As(err, &apiError) && !apiError.Ambiguous)
}

func count(outcome string) { launchesTotal.Inc(map[string]string{labelOutcome: outcome}) }

// createRequest returns the body of the create request.
func (p *DefaultProvider) createRequest(ctx context.Context, request *LaunchRequest, intent Intent,
	sent spelling) (*gobizfly.ServerCreateRequest, error) {
	nodeClass := request.NodeClass
	image := lo.FromPtr(nodeClass.Status.Image())
	script, err := p.bootstrap.Render(ctx, bootstrap.Input{
		NodeName:          intent.Name,
		NodeClaim:         request.NodeClaim,
		Attempt:           intent.Attempt,
		NodeClass:         nodeClass,
		KubernetesVersion: nodeClass.Status.KubernetesVersion,
		NetworkIDs:        intent.Networks,
		Labels:            request.Labels,
		CPU:               request.CPU,
		MemoryMiB:         request.MemoryMiB,
	})
	if err != nil {
		return nil, fmt.Errorf("generating user data: %w", err)
	}
	metadata, err := p.metadata(request, intent, script)
	if err != nil {
		return nil, err
	}
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("naming volume types: %w", err)
	}
	disks := lo.Map(intent.Disks, func(disk catalog.Disk, _ int) *gobizfly.ServerDisk {
		return sent.disk(snapshot, request.Category, disk)
	})
	return &gobizfly.ServerCreateRequest{
		Name:             intent.Name,
		FlavorName:       sent.flavorName(intent.Flavor),
		SSHKey:           nodeClass.Status.SSHKeyName,
		Password:         false,
		RootDisk:         disks[0],
		DataDisks:        disks[1:],
		Type:             request.Category,
		AvailabilityZone: intent.Zone,
		OS: &gobizfly.ServerOS{ID: image.ID, Type: strings.ToLower(string(lo.CoalesceOrEmpty(image.Type,
			v1alpha1.ImageTypeImage)))},
		Quantity:      1,
		Firewalls:     intent.Firewalls,
		NetworkPlan:   bizfly.PlanWord(nodeClass.EffectiveNetworkPlan()),
		VPCNetworkIDs: intent.Networks,
		// The requested disks have no plan of their own and get the server's.
		BillingPlan: intent.BillingPlan,
		IPv6:        lo.FromPtr(nodeClass.Spec.IPv6),
		// The API's own default differs between its clients, so it is always sent.
		IsCreatedWan: lo.ToPtr(nodeClass.EffectivePublicIPv4()),
		UserData:     script.UserData,
		Metadata:     metadata,
	}, nil
}

// disks are what is requested: the disk that the server boots from and then the data disks in their order.
func (p *DefaultProvider) disks(request *LaunchRequest) ([]catalog.Disk, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("choosing volume types: %w", err)
	}
	disks := catalog.Disks(&request.NodeClass.Spec)
	for i, disk := range disks {
		volumeType, offered := disk.In(snapshot, request.Zone, request.Category)
		if !offered {
			return nil, invalid("%s: zone %s has no such disks for %s servers; choose another medium or volume type", disk,
				request.Zone, request.Category)
		}
		disks[i].VolumeType = volumeType
	}
	return disks, nil
}

// maxMetadataValue is how long a metadata value may be, in bytes, so that it fits whatever the compute service counts.
const maxMetadataValue = 255

// metadata returns a server's metadata: the user's, then what the bootstrap script reads, then our own, so that a user
// can break neither the join nor our identity, even where the API server's validation was bypassed.
func (p *DefaultProvider) metadata(request *LaunchRequest, intent Intent,
	script *bootstrap.Output) (map[string]string, error) {
	result := lo.PickBy(request.NodeClass.Spec.Tags, func(key, _ string) bool {
		return !lo.SomeBy(v1alpha1.ReservedMetadataPrefixes, func(prefix string) bool {
			return strings.HasPrefix(key, prefix)
		})
	})
	maps.Copy(result, script.Metadata)
	maps.Copy(result, lo.OmitByValues(map[string]string{
		v1alpha1.MetadataManaged:      "true",
		v1alpha1.MetadataClusterName:  p.cluster.name,
		v1alpha1.MetadataClusterUID:   p.cluster.uid,
		v1alpha1.MetadataName:         intent.Name,
		v1alpha1.MetadataNodeClaim:    request.NodeClaim.Name,
		v1alpha1.MetadataNodeClaimUID: string(request.NodeClaim.UID),
		v1alpha1.MetadataAttempt:      strconv.Itoa(intent.Attempt),
		v1alpha1.MetadataNodePool:     request.NodeClaim.Labels[karpv1.NodePoolLabelKey],
		v1alpha1.MetadataNodeClass:    request.NodeClass.Name,
		v1alpha1.MetadataImage:        intent.ImageID,
		// Not that of the NodeClass's status: templates are read anew for each launch, and a server that has the
		// present ones must not be replaced over those of a minute ago.
		v1alpha1.MetadataUserDataHash: script.UserDataHash,
		v1alpha1.MetadataDataDisks:    strconv.Itoa(len(request.NodeClass.Spec.DataDisks)),
	}, []string{""}))
	for _, key := range slices.Sorted(maps.Keys(result)) {
		// A shortened token or endpoint would boot a paid server that never joins. The value may be a secret.
		if length := len(result[key]); length > maxMetadataValue {
			return nil, invalid("the value of %s is %d bytes long and server metadata holds %d", key, length, maxMetadataValue)
		}
	}
	return result, nil
}

// invalid is the error of a request that is known to be wrong without asking the cloud.
func invalid(format string, args ...any) error {
	return &bizfly.APIError{Operation: "CreateServer", Class: bizfly.ClassInvalid, NotSent: true,
		Message: fmt.Sprintf(format, args...)}
}
