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

package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

const (
	// csiNamePrefix and csiDescriptionSuffix are how the block storage driver marks its volumes.
	csiNamePrefix        = "pvc-"
	csiDescriptionSuffix = "by csi-bizflycloud"
	// volumeAvailable and the statuses that begin with volumeError are those in which the cloud deletes a volume.
	volumeAvailable = "available"
	volumeError     = "error"
)

// disposable returns the disks to delete with a server: its root disk, and the recorded disks that are attached to it,
// less those that a PersistentVolume owns. Where it cannot be found out who owns a disk it is an error, so that the
// whole deletion waits: a disk that is not deleted with its server would be paid for ever after.
func (p *DefaultProvider) disposable(ctx context.Context, v *view, server *gobizfly.Server, recorded []string) ([]string, error) {
	volumes, err := v.volumes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing volumes to delete server %s: %w", server.Name, err)
	}
	listed := lo.KeyBy(volumes, func(volume *gobizfly.Volume) string { return volume.ID })
	attached := lo.KeyBy(server.AttachedVolumes, func(volume gobizfly.AttachedVolume) string { return volume.ID })
	name := p.orderedName(server)
	candidates := lo.Uniq(append(lo.FilterMap(volumes, func(volume *gobizfly.Volume, _ int) (string, bool) {
		return volume.ID, attachedTo(volume, server.ID)
	}), lo.Map(server.AttachedVolumes, func(volume gobizfly.AttachedVolume, _ int) string { return volume.ID })...))
	isRoot := func(id string) bool { return isRootDisk(attached[id], lo.FromPtr(listed[id])) }
	roots := lo.Filter(candidates, func(id string, _ int) bool { return isRoot(id) })
	named := func(id string) bool {
		return strings.HasPrefix(lo.CoalesceOrEmpty(lo.FromPtr(listed[id]).Name, attached[id].Name), name)
	}
	// Of several root disks a user has attached the others, perhaps to rescue them. The record decides only where no name does:
	// it can be written by others.
	ownRoot := func(id string) bool {
		return isRoot(id) && (len(roots) == 1 || named(id) || (lo.Contains(recorded, id) && !lo.SomeBy(roots, named)))
	}
	own := lo.Filter(candidates, func(id string, _ int) bool {
		volume, known := listed[id]
		switch {
		case !known:
			// A list that lags: the server itself vouches for its root disk, nobody for another one.
			return ownRoot(id) && !csiNamed(attached[id].Name, name)
		case len(volume.Attachments) > 0 && !attachedTo(volume, server.ID), csiVolume(volume, name):
			return false
		}
		return ownRoot(id) || (lo.Contains(recorded, id) && !isRoot(id)) || p.orderedDataDisk(server, volume.Name)
	})
	protected, err := p.protectedVolumes(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("deleting server %s: %w", server.Name, err)
	}
	return lo.Reject(own, func(id string, _ int) bool { return protected.Has(id) }), nil
}

// isRootDisk reports whether a disk is the root disk of the server that it is attached to. What the server says of it counts
// before what the list of volumes does.
func isRootDisk(attached gobizfly.AttachedVolume, listed gobizfly.Volume) bool {
	if attached.AttachedType != "" {
		return attached.AttachedType == attachedTypeRoot
	}
	return listed.AttachedType == attachedTypeRoot && listed.Bootable
}

// leftovers returns the disks that outlived their server: those that the cloud named after it, and those that the cloud was
// told to delete with it. What a PersistentVolume names is none of them.
func (p *DefaultProvider) leftovers(ctx context.Context, v *view, current record) ([]*gobizfly.Volume, error) {
	volumes, err := v.volumes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing volumes to find what server %s left: %w", lo.CoalesceOrEmpty(current.Name, current.ID), err)
	}
	left := lo.Filter(volumes, func(volume *gobizfly.Volume, _ int) bool {
		// A disk that has found another server since is that one's.
		elsewhere := len(volume.Attachments) > 0 && !attachedTo(volume, current.ID)
		return (strayDisk(volume, current) || lo.Contains(current.Asked, volume.ID)) && !elsewhere && !csiVolume(volume, current.Name)
	})
	protected, err := p.protectedVolumes(ctx, lo.Map(left, func(volume *gobizfly.Volume, _ int) string { return volume.ID }))
	if err != nil {
		return nil, fmt.Errorf("deleting what server %s left: %w", current.Name, err)
	}
	return lo.Reject(left, func(volume *gobizfly.Volume, _ int) bool { return protected.Has(volume.ID) }), nil
}

// deleteDisks deletes the disks that outlived their server, and returns those that are still there.
func (p *DefaultProvider) deleteDisks(ctx context.Context, v *view, current record) []leftover {
	volumes, err := p.leftovers(ctx, v, current)
	if err != nil {
		return []leftover{{kind: LeftoverDisk, err: err}}
	}
	return lo.FlatMap(volumes, func(volume *gobizfly.Volume, _ int) []leftover { return p.deleteVolume(ctx, volume) })
}

// deleteVolume deletes a free disk, which is a leftover until the list no longer has it. One that is not free yet, or cannot
// be deleted because of a snapshot, waits.
func (p *DefaultProvider) deleteVolume(ctx context.Context, volume *gobizfly.Volume) []leftover {
	still := func(err error, waiting bool) []leftover {
		return []leftover{{kind: LeftoverDisk, waiting: waiting, err: fmt.Errorf("deleting disk %s (%s): %w", volume.Name, volume.ID, err)}}
	}
	if len(volume.Attachments) > 0 || (volume.Status != volumeAvailable && !strings.HasPrefix(volume.Status, volumeError)) {
		return still(fmt.Errorf("it is %s", volume.Status), true)
	}
	err := p.api.DeleteVolume(ctx, volume.ID)
	switch {
	case err == nil:
		diskDeletionsTotal.Inc(map[string]string{labelOutcome: outcomeAccepted})
		log.FromContext(ctx).Info("deleting disk that outlived its server", "volume", volume.Name, "volume-id", volume.ID)
		return still(errors.New("the cloud has accepted it"), true)
	case bizfly.IsNotFound(err):
		return nil
	case bizfly.IsConflict(err):
		return still(err, true)
	}
	diskDeletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	return still(err, false)
}

// protectedVolumes reads which volumes PersistentVolumes own, when there is anything to protect.
func (p *DefaultProvider) protectedVolumes(ctx context.Context, candidates []string) (sets.Set[string], error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	protected, err := p.protected(ctx)
	if err != nil {
		return nil, fmt.Errorf("no disk may be deleted while it is not known which ones PersistentVolumes own: %w", err)
	}
	return protected, nil
}

func attachedTo(volume *gobizfly.Volume, serverID string) bool {
	return serverID != "" && lo.SomeBy(volume.Attachments, func(a gobizfly.VolumeAttachment) bool { return a.ServerID == serverID })
}

// csiVolume says that the block storage driver made the volume, whatever else may be true of it.
func csiVolume(volume *gobizfly.Volume, serverName string) bool {
	return csiNamed(volume.Name, serverName) || strings.HasSuffix(volume.Description, csiDescriptionSuffix)
}

// csiNamed says that a volume is named like the driver's; the root disk of a node whose pool is called pvc is not.
func csiNamed(volumeName, serverName string) bool {
	return strings.HasPrefix(volumeName, csiNamePrefix) && (serverName == "" || volumeName != rootDiskName(serverName))
}
