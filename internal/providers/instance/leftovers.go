// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// Leftovers returns the free disks whose names prove that they were launched with a server of this cluster, where no
// server of that name exists any more.
func (p *DefaultProvider) Leftovers(ctx context.Context) ([]Leftover, error) {
	return p.leftovers(ctx, p.recent())
}

// leftovers returns the same from lists that began after this time.
func (p *DefaultProvider) leftovers(ctx context.Context, after time.Time) ([]Leftover, error) {
	v, err := p.view(ctx, after)
	if err != nil {
		return nil, err
	}
	// What is attached to nothing in a list that began after that of the servers is not that of a server which is
	// missing there.
	volumes, err := p.volumes.get(ctx, v.begun)
	if err != nil {
		return nil, fmt.Errorf("listing what deleted servers have left: %w", err)
	}
	return lo.FilterMap(volumes.value, func(volume *gobizfly.Volume, _ int) (Leftover, bool) {
		left, found := p.leftDisk(volume)
		return left, found && !v.value.hasNamed(left.Server)
	}), nil
}

// leftDisk returns a free disk as what a server has left, and whether it is one.
func (p *DefaultProvider) leftDisk(volume *gobizfly.Volume) (Leftover, bool) {
	base, isRoot := strings.CutSuffix(volume.Name, RootDiskSuffix)
	base, _, isData := strings.Cut(base, dataDiskInfix)
	left := Leftover{ID: volume.ID, Name: volume.Name, Server: p.cluster.launchedAs(base),
		CreatedAt: bizfly.Time(volume.CreatedAt)}
	switch {
	case left.Server == "" || (!isRoot && !isData) || len(volume.Attachments) > 0 ||
		strings.HasSuffix(volume.Description, csiDescriptionSuffix):
		return Leftover{}, false
	case isData:
		left.Kept = "it may have been detached to keep its data"
	case volume.SnapshotID != "":
		left.Kept = "it was made from a snapshot, perhaps to restore the node's disk"
	case !Settled(volume):
		return Leftover{}, false
	}
	return left, true
}

// Settled reports whether a disk is neither being created nor deleted.
func Settled(volume *gobizfly.Volume) bool {
	return volume.Status == volumeAvailable || strings.HasPrefix(volume.Status, volumeError)
}

// deleteFailedLaunch deletes the disks that a launch has left which failed without a server. Its data disks are among
// them: they were never attached, so that no user has detached them to keep their data. Later only their name is known.
func (p *DefaultProvider) deleteFailedLaunch(ctx context.Context, server string) error {
	found, err := p.leftovers(ctx, p.clock.Now())
	for _, left := range found {
		if left.Server == server {
			err = errors.Join(err, p.DeleteLeftover(ctx, left))
		}
	}
	return err
}

// DeleteLeftover deletes a disk that a server has left.
func (p *DefaultProvider) DeleteLeftover(ctx context.Context, left Leftover) error {
	protected, err := p.protectedVolumes(ctx, p.clock.Now(), []string{left.ID})
	if err == nil && protected.Has(left.ID) {
		return nil
	}
	if err == nil {
		err = p.api.DeleteVolume(ctx, left.ID)
		diskDeletionsTotal.Inc(map[string]string{labelOutcome: lo.Ternary(err == nil, outcomeAccepted, outcomeError)})
	}
	switch {
	case err == nil:
		log.FromContext(ctx).Info("deleting disk that outlived its server", "volume", left.Name, "volume-id", left.ID,
			"server", left.Server)
		return nil
	case bizfly.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("deleting disk %s (%s), which server %s has left: %w", left.Name, left.ID, left.Server, err)
}

const (
	// CSIVolumePrefix begins the names of volumes that the block storage driver creates for PersistentVolumeClaims, and
	// csiDescriptionSuffix ends their descriptions.
	CSIVolumePrefix      = "pvc-"
	csiDescriptionSuffix = "by csi-bizflycloud"
	// volumeAvailable and the statuses that begin with volumeError are those in which the cloud deletes a volume.
	volumeAvailable = "available"
	volumeError     = "error"
	// dataDiskInfix begins, after the server's name, the names of the disks that the cloud created with the server.
	dataDiskInfix = "_datadisk"
)

// disk is a disk of a server that is to be deleted, with what is known of it.
type disk struct {
	id string
	// attached is what the server says of it, and listed what the list of volumes does; empty and nil where they do not
	// name it.
	attached Volume
	listed   *gobizfly.Volume
	root     bool
	recorded bool
}

// name is its name as far as it is known.
func (d disk) name() string { return lo.CoalesceOrEmpty(lo.FromPtr(d.listed).Name, d.attached.Name) }

// serverDisks are the disks of a server that is to be deleted.
type serverDisks struct {
	server *Instance
	disks  []disk
	// unlisted is true where the list of volumes cannot be read: then the server alone says what it has.
	unlisted bool
}

// newServerDisks gathers what the server, the list of volumes and the record of the NodeClaim say.
func newServerDisks(server *Instance, volumes []*gobizfly.Volume, unlisted bool, recorded []string) serverDisks {
	s := serverDisks{server: server, unlisted: unlisted}
	listed := lo.KeyBy(volumes, func(volume *gobizfly.Volume) string { return volume.ID })
	attached := lo.KeyBy(server.Volumes, func(volume Volume) string { return volume.ID })
	ofList := lo.FilterMap(volumes, func(volume *gobizfly.Volume, _ int) (string, bool) {
		return volume.ID, attachedTo(volume, server.ID)
	})
	ofServer := lo.Map(server.Volumes, func(volume Volume, _ int) string { return volume.ID })
	for _, id := range lo.Uniq(append(ofList, ofServer...)) {
		s.disks = append(s.disks, disk{id: id, attached: attached[id], listed: listed[id],
			recorded: lo.Contains(recorded, id),
			root:     isRootDisk(attached[id], lo.FromPtr(listed[id]))})
	}
	return s
}

// ownership is why a disk is deleted with its server, or why it is kept.
type ownership string

const (
	ownRoot     ownership = "it is the server's root disk"
	ownRecorded ownership = "it was attached before the node registered"
	ownNamed    ownership = "it has the name of a data disk that was requested with the server"

	othersAttached ownership = "it is attached to another server"
	othersCSI      ownership = "the block storage driver created it"
	othersRoot     ownership = "it is another root disk, which a user has attached"
	unproven       ownership = "the list of volumes lacks it"
	others         ownership = "nothing proves it to be the server's own"
)

// own reports whether the disk is deleted with its server.
func (o ownership) own() bool { return o == ownRoot || o == ownRecorded || o == ownNamed }

// ownershipOf answers whether a disk is the server's own, and why, as far as no PersistentVolume names it.
func (s serverDisks) ownershipOf(d disk) ownership {
	name := s.server.launchName
	switch {
	case d.listed != nil && len(d.listed.Attachments) > 0 && !attachedTo(d.listed, s.server.ID):
		return othersAttached
	case csiNamed(d.name(), name), d.listed != nil && strings.HasSuffix(d.listed.Description, csiDescriptionSuffix):
		return othersCSI
	case d.root && s.ownRoot(d):
		return ownRoot
	case d.root:
		return othersRoot
	case d.listed == nil && !s.unlisted:
		return unproven // a list that lags: nothing else proves it
	case d.recorded:
		return ownRecorded
	case s.server.DataDisks > 0 && dataDiskNamed(d.name(), name) && lo.FromPtr(d.listed).SnapshotID == "":
		// Ours without a record, too. No server is launched with a data disk from a snapshot: a user has restored that.
		return ownNamed
	}
	return others
}

// ownRoot reports whether a root disk is the server's own. Of several, a user has attached the others, perhaps to
// rescue them. The record decides only where no name does: it can be written by others.
func (s serverDisks) ownRoot(d disk) bool {
	named := func(d disk) bool { return diskNamed(d.name(), s.server.launchName, RootDiskSuffix) }
	roots := lo.Filter(s.disks, func(other disk, _ int) bool { return other.root })
	return len(roots) == 1 || named(d) || d.recorded && !lo.SomeBy(roots, named)
}

// disksToDelete returns the disks to delete with a server: its own, less those that a PersistentVolume owns. While the
// list of volumes cannot be read, the deletion waits, since it alone shows everything that a disk is. It waits for a
// while only: the server is paid for, and names its disks itself. What these do not prove is left for garbage
// collection.
func (p *DefaultProvider) disksToDelete(ctx context.Context, v *view, server *Instance,
	recorded []string) ([]string, error) {
	volumes, err := p.volumes.get(ctx, v.begun)
	unlisted := err != nil && p.volumes.failingFor() >= ttl.UnlistedVolumes
	if err != nil && !unlisted {
		return nil, fmt.Errorf("listing volumes to delete server %s: %w", server.Name, err)
	}
	var listed []*gobizfly.Volume
	if !unlisted {
		listed = volumes.value
	}
	all := newServerDisks(server, listed, unlisted, recorded)
	own, kept := lo.FilterReject(all.disks, func(d disk, _ int) bool { return all.ownershipOf(d).own() })
	if unlisted {
		log.FromContext(ctx).Error(err, "deleting a server by what it says of its disks, because volumes cannot be listed; "+
			"garbage collection finds what is left",
			"server", server.Name, "kept", lo.Map(kept, func(d disk, _ int) string { return d.id }))
	}
	ids := lo.Map(own, func(d disk, _ int) string { return d.id })
	protected, err := p.protectedVolumes(ctx, v.begun, ids)
	if err != nil {
		return nil, fmt.Errorf("deleting server %s: %w", server.Name, err)
	}
	return lo.Reject(ids, func(id string, _ int) bool { return protected.Has(id) }), nil
}

// isRootDisk reports whether a disk is the root disk of the server that it is attached to. What the server says of it
// counts before what the list of volumes does.
func isRootDisk(attached Volume, listed gobizfly.Volume) bool {
	if attached.attachedType != "" {
		return attached.Root
	}
	return listed.AttachedType == attachedTypeRoot && listed.Bootable
}

// protectedVolumes returns the volumes that PersistentVolumes own, when there is anything to protect. They are read
// from the API server once for all deletions that ask at the same time: a cache could lag without a bound. A
// PersistentVolume that names a node's disk and is created in the seconds until the request is sent is not seen, as it
// would not be by a read of each deletion's own; the CSI driver creates none for disks that servers are launched with.
func (p *DefaultProvider) protectedVolumes(ctx context.Context, after time.Time,
	candidates []string) (sets.Set[string], error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	protected, err := p.protected.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("no disk may be deleted while it is not known which ones PersistentVolumes own: %w", err)
	}
	return protected.value, nil
}

func attachedTo(volume *gobizfly.Volume, serverID string) bool {
	return serverID != "" && lo.SomeBy(volume.Attachments, func(a gobizfly.VolumeAttachment) bool {
		return a.ServerID == serverID
	})
}

// csiNamed reports whether a volume is named like the driver's; a disk of a node whose pool is called pvc is not.
func csiNamed(volumeName, serverName string) bool {
	return strings.HasPrefix(volumeName, CSIVolumePrefix) && (serverName == "" ||
		!strings.HasPrefix(volumeName, serverName))
}

// Names reports whether the disk has a name that the cloud gives to the data disks of this server.
func (i *Instance) Names(v Volume) bool { return dataDiskNamed(v.Name, i.launchName) }

// dataDiskNamed reports whether a disk has a name that the cloud gives to the data disks of a create request.
func dataDiskNamed(volumeName, serverName string) bool {
	return diskNamed(volumeName, serverName, dataDiskInfix)
}

// diskNamed reports whether a disk has the name that the cloud gives to one of a server, with the code that it may have
// appended to the name of the server. A disk of a user's copy of the server is named after the copy.
func diskNamed(volumeName, serverName, infix string) bool {
	rest, found := strings.CutPrefix(volumeName, serverName)
	code, _, isDisk := strings.Cut(rest, infix)
	return serverName != "" && found && isDisk && (code == "" || isAppendedCode(code))
}
