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
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// interfaceWAN is what the cloud calls the interface of a public address, and interfaceLAN one in a VPC network.
	interfaceWAN = "WAN"
	interfaceLAN = "LAN"
)

// usedBy returns the id of the server that has the interface; "" when none has.
func usedBy(port *gobizfly.NetworkInterface) string {
	return lo.CoalesceOrEmpty(port.AttachedServer.ID, port.DeviceID)
}

// deleteLeftovers deletes what a launch without a server left behind: what is free and has the name of that launch.
func (d *deleter) deleteLeftovers(ctx context.Context, name string) error {
	v, err := d.view(ctx, d.clock.Now())
	if err != nil {
		return err
	}
	return d.resume(ctx, v, d.tracker.known(DeleteRequest{Name: name}), false)
}

// findLeftovers remembers the names of those servers of this cluster of which only a free root disk or address is left. Their
// names prove them to be ours, so that no process needs to have known them. They may be those of a launch that is waited
// for, so nothing is deleted before that has ended.
func (d *deleter) findLeftovers(ctx context.Context, v *view, launching sets.Set[string]) error {
	volumes, err := d.volumes.get(ctx, v.begun)
	if err != nil {
		return fmt.Errorf("listing volumes to find what deleted servers have left: %w", err)
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		return fmt.Errorf("listing network interfaces to find what deleted servers have left: %w", err)
	}
	names := sets.New[string]()
	for _, volume := range volumes.value {
		if name, ok := strings.CutSuffix(volume.Name, rootDiskSuffix); ok && len(volume.Attachments) == 0 && d.proven(name) {
			names.Insert(name)
		}
	}
	for _, port := range ports.value.all {
		if usedBy(port) == "" {
			names.Insert(d.provenServer(port.Name))
		}
	}
	names.Delete("")
	// A deletion that knows more of the server removes them.
	for _, r := range d.tracker.open() {
		names.Delete(r.Name)
	}
	for name := range names.Difference(launching) {
		if len(v.value.named(name)) == 0 {
			d.tracker.expect(name, d.clock.Now().Add(ttl.AbandonedLaunch), true)
		}
	}
	return nil
}

// attachedAddresses returns those of the recorded interfaces that the server has now. It is read before the server is
// deleted, because the record alone proves nothing. The deletion does not wait for it: what the cloud has named after the
// server needs no record.
func (d *deleter) attachedAddresses(ctx context.Context, v *view, server *Instance, current record) []string {
	if len(current.RecordedAddresses) == 0 {
		return nil
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the network interfaces of a server that is deleted", "server", server.Name)
		return nil
	}
	return lo.FilterMap(ports.value.used, func(port Port, _ int) (string, bool) {
		return port.ID, port.ServerID == server.ID && lo.Contains(current.RecordedAddresses, port.ID)
	})
}

// releaseAddresses releases the interfaces that outlived their server, and returns those that are still there. Those that a
// server gets for free are deleted with it; those that are paid for stay, like disks. What another server uses by now is
// that server's.
func (d *deleter) releaseAddresses(ctx context.Context, v *view, current record) []leftover {
	if len(current.Attached) == 0 && current.Name == "" {
		return nil
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		return []leftover{{kind: LeftoverAddress, err: fmt.Errorf("listing network interfaces to find what server %s left: %w",
			lo.CoalesceOrEmpty(current.Name, current.ID), err)}}
	}
	var left []leftover
	for _, port := range ports.value.all {
		if user := usedBy(port); ownAddress(port, current) && (user == "" || user == current.ID) {
			left = append(left, d.releaseAddress(ctx, port)...)
		}
	}
	return left
}

// releaseAddress releases one interface, which is a leftover until the list no longer has it.
func (d *deleter) releaseAddress(ctx context.Context, port *gobizfly.NetworkInterface) []leftover {
	still := func(err error, waiting bool) []leftover {
		return []leftover{{kind: LeftoverAddress, waiting: waiting,
			err: fmt.Errorf("releasing %s (%s, interface %s): %w", port.IPAddress, port.Name, port.ID, err)}}
	}
	if usedBy(port) != "" {
		return still(errors.New("the cloud has not detached it"), true)
	}
	err := lo.Ternary(port.Type == interfaceWAN, d.api.DeleteWanIP, d.api.DeleteNetworkInterface)(ctx, port.ID)
	switch {
	case err == nil:
		addressesReleasedTotal.Inc(map[string]string{labelType: port.Type})
		log.FromContext(ctx).Info("releasing address that outlived its server", "address", port.IPAddress, "type", port.Type, "interface-id", port.ID)
		return still(errors.New("the cloud has accepted it"), true)
	case bizfly.IsNotFound(err):
		return nil
	}
	return still(err, bizfly.IsConflict(err))
}

// ownAddress reports whether the interface is provably the server's: by the name that the cloud gave it at the launch, or
// because it is on the record and this process has seen it attached to the server.
func ownAddress(port *gobizfly.NetworkInterface, current record) bool {
	named := current.Name != "" && (port.Name == current.Name || strings.HasPrefix(port.Name, current.Name+"-"))
	return named || lo.Contains(current.Attached, port.ID)
}

// leaveBKE removes the node from BKE. A Kubernetes Engine that is down keeps a NodeClaim no longer than a disk does.
func (d *deleter) leaveBKE(ctx context.Context, current record) []leftover {
	if current.Left || current.Name == "" || current.ID == "" {
		return nil
	}
	values, err := d.config.BKE.Values(ctx)
	if err == nil {
		if values.ClusterID == "" || values.Token == "" {
			return nil
		}
		// Core and a pass of garbage collection may both be here: only the one that writes the time first sends the request.
		now := d.clock.Now()
		before, _ := d.tracker.change(current.DeleteRequest, func(r *record) {
			if !now.Before(r.LeavingUntil) {
				r.LeavingUntil = now.Add(ttl.LeavingBKE)
			}
		})
		switch {
		case before.Left:
			return nil
		case now.Before(before.LeavingUntil):
			return []leftover{{kind: LeftoverNode, err: fmt.Errorf("node %s leaves BKE", current.Name), waiting: true}}
		}
		err = d.api.LeaveCluster(ctx, values.ClusterID, values.Token, current.Name)
	}
	if err != nil {
		d.tracker.change(current.DeleteRequest, func(r *record) { r.LeavingUntil = time.Time{} })
		return []leftover{{kind: LeftoverNode, err: fmt.Errorf("removing node %s from BKE: %w", current.Name, err)}}
	}
	d.tracker.change(current.DeleteRequest, func(r *record) { r.Left = true })
	return nil
}

const (
	// csiNamePrefix and csiDescriptionSuffix are how the block storage driver marks its volumes.
	csiNamePrefix        = "pvc-"
	csiDescriptionSuffix = "by csi-bizflycloud"
	// volumeAvailable and the statuses that begin with volumeError are those in which the cloud deletes a volume.
	volumeAvailable = "available"
	volumeError     = "error"
	// dataDiskInfix begins, after the server's name, the names of the disks that the cloud created with the server.
	dataDiskInfix = "_datadisk"
)

// disposable returns the disks to delete with a server: its root disk, and the recorded disks that are attached to it,
// less those that a PersistentVolume owns. Where the owner of a disk cannot be found out it returns an error, so that the
// complete deletion waits: a disk that is not deleted with its server would be paid for indefinitely.
func (d *deleter) disposable(ctx context.Context, v *view, server *Instance, recorded []string) ([]string, error) {
	volumes, err := d.volumes.get(ctx, v.begun)
	if err != nil {
		return nil, fmt.Errorf("listing volumes to delete server %s: %w", server.Name, err)
	}
	listed := lo.KeyBy(volumes.value, func(volume *gobizfly.Volume) string { return volume.ID })
	attached := lo.KeyBy(server.Volumes, func(volume Volume) string { return volume.ID })
	name := server.launchName
	candidates := lo.Uniq(append(lo.FilterMap(volumes.value, func(volume *gobizfly.Volume, _ int) (string, bool) {
		return volume.ID, attachedTo(volume, server.ID)
	}), lo.Map(server.Volumes, func(volume Volume, _ int) string { return volume.ID })...))
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
			// A list that lags: the server itself proves its root disk, and nothing proves another one.
			return ownRoot(id) && !csiNamed(attached[id].Name, name)
		case len(volume.Attachments) > 0 && !attachedTo(volume, server.ID), csiVolume(volume, name):
			return false
		}
		// A data disk is ours without a record too where the server was launched with some and this one has such a name.
		return ownRoot(id) || (lo.Contains(recorded, id) && !isRoot(id)) || (server.DataDisks > 0 && dataDiskNamed(volume.Name, name))
	})
	protected, err := d.protectedVolumes(ctx, v, own)
	if err != nil {
		return nil, fmt.Errorf("deleting server %s: %w", server.Name, err)
	}
	return lo.Reject(own, func(id string, _ int) bool { return protected.Has(id) }), nil
}

// isRootDisk reports whether a disk is the root disk of the server that it is attached to. What the server says of it counts
// before what the list of volumes does.
func isRootDisk(attached Volume, listed gobizfly.Volume) bool {
	if attached.attachedType != "" {
		return attached.Root
	}
	return listed.AttachedType == attachedTypeRoot && listed.Bootable
}

// protectedVolumes returns the volumes that PersistentVolumes own, when there is anything to protect. They are read from the
// API server once for all deletions that decide by the same lists, after these lists: a cache could lag without a bound. A
// PersistentVolume that names a node's disk and is created in the seconds until the request is sent is not seen, as it would
// not be by a read of each deletion's own; the CSI driver creates none for disks that servers are launched with.
func (d *deleter) protectedVolumes(ctx context.Context, v *view, candidates []string) (sets.Set[string], error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	protected, err := d.protected.get(ctx, v.begun)
	if err != nil {
		return nil, fmt.Errorf("no disk may be deleted while it is not known which ones PersistentVolumes own: %w", err)
	}
	return protected.value, nil
}

// leftoverDisks returns the disks that outlived their server: those that the cloud named after it, and those that a request
// has listed to delete with it. What a PersistentVolume names is not among them.
func (d *deleter) leftoverDisks(ctx context.Context, v *view, current record) ([]*gobizfly.Volume, error) {
	volumes, err := d.volumes.get(ctx, v.begun)
	if err != nil {
		return nil, fmt.Errorf("listing volumes to find what server %s left: %w", lo.CoalesceOrEmpty(current.Name, current.ID), err)
	}
	left := lo.Filter(volumes.value, func(volume *gobizfly.Volume, _ int) bool {
		// A disk that is attached to another server since is that one's.
		elsewhere := len(volume.Attachments) > 0 && !attachedTo(volume, current.ID)
		return (strayDisk(volume, current) || lo.Contains(current.Requested, volume.ID)) && !elsewhere && !csiVolume(volume, current.Name)
	})
	protected, err := d.protectedVolumes(ctx, v, lo.Map(left, func(volume *gobizfly.Volume, _ int) string { return volume.ID }))
	if err != nil {
		return nil, fmt.Errorf("deleting what server %s left: %w", current.Name, err)
	}
	return lo.Reject(left, func(volume *gobizfly.Volume, _ int) bool { return protected.Has(volume.ID) }), nil
}

// deleteDisks deletes the disks that outlived their server, and returns those that are still there.
func (d *deleter) deleteDisks(ctx context.Context, v *view, current record) []leftover {
	volumes, err := d.leftoverDisks(ctx, v, current)
	if err != nil {
		return []leftover{{kind: LeftoverDisk, err: err}}
	}
	return lo.FlatMap(volumes, func(volume *gobizfly.Volume, _ int) []leftover { return d.deleteVolume(ctx, volume) })
}

// deleteVolume deletes a free disk, which is a leftover until the list no longer has it. One that is not free yet, or cannot
// be deleted because of a snapshot, waits.
func (d *deleter) deleteVolume(ctx context.Context, volume *gobizfly.Volume) []leftover {
	still := func(err error, waiting bool) []leftover {
		return []leftover{{kind: LeftoverDisk, waiting: waiting, err: fmt.Errorf("deleting disk %s (%s): %w", volume.Name, volume.ID, err)}}
	}
	if len(volume.Attachments) > 0 || (volume.Status != volumeAvailable && !strings.HasPrefix(volume.Status, volumeError)) {
		return still(fmt.Errorf("it is %s", volume.Status), true)
	}
	err := d.api.DeleteVolume(ctx, volume.ID)
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

func attachedTo(volume *gobizfly.Volume, serverID string) bool {
	return serverID != "" && lo.SomeBy(volume.Attachments, func(a gobizfly.VolumeAttachment) bool { return a.ServerID == serverID })
}

// csiVolume reports whether the block storage driver created the volume, whatever else may be true of it.
func csiVolume(volume *gobizfly.Volume, serverName string) bool {
	return csiNamed(volume.Name, serverName) || strings.HasSuffix(volume.Description, csiDescriptionSuffix)
}

// csiNamed reports whether a volume is named like the driver's; the root disk of a node whose pool is called pvc is not.
func csiNamed(volumeName, serverName string) bool {
	return strings.HasPrefix(volumeName, csiNamePrefix) && (serverName == "" || volumeName != serverName+rootDiskSuffix)
}

// strayDisk reports whether a disk is by its name one that a launch created and that was not deleted with its server: the
// launch failed, or the server was deleted outside Karpenter. Where a request has listed the disks to delete with the server, a
// data disk that is left was detached by a user before, who may want it; where there is a record, what is not on it is not ours;
// and where only the name of a disk is known, a detached data disk looks like one that was never attached.
func strayDisk(volume *gobizfly.Volume, current record) bool {
	if current.Name == "" || volume.Name == current.Name+rootDiskSuffix {
		return current.Name != ""
	}
	return len(current.Requested) == 0 && !current.Found && dataDiskNamed(volume.Name, current.Name) &&
		(len(current.RecordedVolumes) == 0 || lo.Contains(current.RecordedVolumes, volume.ID))
}

// dataDiskNamed reports whether a disk has a name that the cloud gives to the data disks of a create request.
func dataDiskNamed(volumeName, serverName string) bool {
	return serverName != "" && strings.HasPrefix(volumeName, serverName+dataDiskInfix)
}
