// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csi stands in for csi-bizflycloud, the block storage driver: it makes volumes where the scheduler has put their
// pods, attaches and detaches them, and deletes them with their claims, by the calls of gobizfly and the objects of
// Kubernetes that the driver and its sidecars use. What it leaves out are mounts, which no kubelet here would make.
package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// Driver is the name of the driver.
	Driver = "volume.csi.bizflycloud.vn"
	// TopologyKey is the label of nodes and the key of volumes that hold the zone.
	TopologyKey = "topology.volume.csi.bizflycloud.vn/zone"
	// MaxVolumes is how many volumes a node takes.
	MaxVolumes = 20

	providerIDPrefix = "bizflycloud://"
	finalizer        = "external-attacher/volume-csi-bizflycloud-vn"
	selectedNode     = "volume.kubernetes.io/selected-node"
	provisionedBy    = "pv.kubernetes.io/provisioned-by"
	controllerAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
	gib              = 1 << 30
)

// StandIn is the driver.
type StandIn struct {
	// Kube reaches the cluster, with the rights of the driver.
	Kube client.Client
	// Cloud makes a client of gobizfly that is logged in.
	Cloud func(ctx context.Context) (*gobizfly.Client, error)
	// BillingPlan is the billing plan of volumes. The driver sends none, and what the API then takes is not documented: the
	// cloud attaches only volumes that are paid for like the server.
	BillingPlan string

	mu  sync.Mutex
	err error
}

// Run plays the driver until the context ends. Failures are retried, as the sidecars do, and reported by Err.
func (s *StandIn) Run(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := s.Sync(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
		return false, nil
	})
}

// Err is what went wrong in the last pass.
func (s *StandIn) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Sync makes one pass: node plugin, attacher, provisioner.
func (s *StandIn) Sync(ctx context.Context) error {
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.nodes(ctx, cloud), s.attachments(ctx, cloud), s.claims(ctx, cloud), s.volumes(ctx, cloud))
}

// Install makes the driver known to Kubernetes, with a class of volumes that wait for their pod.
func (s *StandIn) Install(ctx context.Context, class string) error {
	for _, object := range []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true), PodInfoOnMount: ptr.To(true)}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: Driver,
			Parameters:        map[string]string{"type": "PREMIUM-SSD1", "category": "premium"},
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
		},
	} {
		if err := client.IgnoreAlreadyExists(s.Kube.Create(ctx, object)); err != nil {
			return fmt.Errorf("making the %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// nodes is the node plugin, which the kubelet registers: a CSINode and the zone as a label, both from the server's metadata.
func (s *StandIn) nodes(ctx context.Context, cloud *gobizfly.Client) error {
	list := &corev1.NodeList{}
	if err := s.Kube.List(ctx, list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		node := &list.Items[i]
		id, ours := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix)
		if !ours || node.DeletionTimestamp != nil || node.Labels[TopologyKey] != "" {
			continue
		}
		errs = append(errs, ignoreGone(s.register(ctx, cloud, node, id)))
	}
	return errors.Join(errs...)
}

func (s *StandIn) register(ctx context.Context, cloud *gobizfly.Client, node *corev1.Node, id string) error {
	server, err := cloud.CloudServer.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("reading server %s: %w", id, err)
	}
	plugin := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: Driver, NodeID: id, TopologyKeys: []string{TopologyKey}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](MaxVolumes)},
		}}},
	}
	if err := client.IgnoreAlreadyExists(s.Kube.Create(ctx, plugin)); err != nil {
		return fmt.Errorf("making the CSINode %s: %w", node.Name, err)
	}
	before := node.DeepCopy()
	node.Labels[TopologyKey] = server.AvailabilityZone
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[controllerAttach] = "true"
	return s.Kube.Patch(ctx, node, client.MergeFrom(before))
}

// claims is the provisioner: a volume for each claim whose pod has a node.
func (s *StandIn) claims(ctx context.Context, cloud *gobizfly.Client) error {
	list := &corev1.PersistentVolumeClaimList{}
	if err := s.Kube.List(ctx, list); err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	var errs []error
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && claim.Annotations[selectedNode] != "" {
			errs = append(errs, ignoreGone(s.provision(ctx, cloud, claim)))
		}
	}
	return errors.Join(errs...)
}

func (s *StandIn) provision(ctx context.Context, cloud *gobizfly.Client, claim *corev1.PersistentVolumeClaim) error {
	class, node := &storagev1.StorageClass{}, &corev1.Node{}
	if err := s.Kube.Get(ctx, client.ObjectKey{Name: ptr.Deref(claim.Spec.StorageClassName, "")}, class); err != nil {
		return err
	}
	if class.Provisioner != Driver {
		return nil
	}
	if err := s.Kube.Get(ctx, client.ObjectKey{Name: claim.Annotations[selectedNode]}, node); err != nil {
		return err
	}
	zone := node.Labels[TopologyKey]
	if zone == "" {
		return nil // the node plugin has not registered yet
	}
	name := "pvc-" + string(claim.UID)
	// Idempotent as the driver is: by the name.
	volumes, err := cloud.CloudServer.Volumes().List(ctx, &gobizfly.VolumeListOptions{})
	if err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	var volume *gobizfly.Volume
	if i := slices.IndexFunc(volumes, func(v *gobizfly.Volume) bool { return v.Name == name }); i >= 0 {
		volume = volumes[i]
	} else if volume, err = cloud.CloudServer.Volumes().Create(ctx, &gobizfly.VolumeCreateRequest{
		Name: name, Description: fmt.Sprintf("%s/%s by csi-bizflycloud", claim.Namespace, claim.Name),
		Size:       int((claim.Spec.Resources.Requests.Storage().Value() + gib - 1) / gib),
		VolumeType: class.Parameters["type"], VolumeCategory: class.Parameters["category"], AvailabilityZone: zone, BillingPlan: s.BillingPlan,
	}); err != nil {
		return fmt.Errorf("making volume %s: %w", name, err)
	}
	return client.IgnoreAlreadyExists(s.Kube.Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: Driver}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, StorageClassName: class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: volume.ID}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}))
}

// volumes deletes the volumes whose claims are gone.
func (s *StandIn) volumes(ctx context.Context, cloud *gobizfly.Client) error {
	list := &corev1.PersistentVolumeList{}
	if err := s.Kube.List(ctx, list); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		pv := &list.Items[i]
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != Driver || pv.Status.Phase != corev1.VolumeReleased ||
			pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		// While it is attached the cloud rejects the deletion, and it is retried.
		if err := cloud.CloudServer.Volumes().Delete(ctx, pv.Spec.CSI.VolumeHandle); err != nil && !errors.Is(err, gobizfly.ErrNotFound) {
			errs = append(errs, fmt.Errorf("deleting volume %s: %w", pv.Spec.CSI.VolumeHandle, err))
			continue
		}
		errs = append(errs, ignoreGone(s.Kube.Delete(ctx, pv)))
	}
	return errors.Join(errs...)
}

// attachments is the attacher: kube-controller-manager reports what is to be attached where.
func (s *StandIn) attachments(ctx context.Context, cloud *gobizfly.Client) error {
	list := &storagev1.VolumeAttachmentList{}
	if err := s.Kube.List(ctx, list); err != nil {
		return fmt.Errorf("listing attachments: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if list.Items[i].Spec.Attacher == Driver {
			errs = append(errs, ignoreGone(s.attachment(ctx, cloud, &list.Items[i])))
		}
	}
	return errors.Join(errs...)
}

func (s *StandIn) attachment(ctx context.Context, cloud *gobizfly.Client, attachment *storagev1.VolumeAttachment) error {
	pv := &corev1.PersistentVolume{}
	if err := s.Kube.Get(ctx, client.ObjectKey{Name: ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "")}, pv); err != nil {
		return err
	}
	if attachment.DeletionTimestamp != nil {
		return s.detach(ctx, cloud, attachment, pv.Spec.CSI.VolumeHandle)
	}
	if attachment.Status.Attached {
		return nil
	}
	plugin := &storagev1.CSINode{}
	if err := s.Kube.Get(ctx, client.ObjectKey{Name: attachment.Spec.NodeName}, plugin); err != nil {
		return err
	}
	before := attachment.DeepCopy()
	if controllerutil.AddFinalizer(attachment, finalizer) {
		if err := s.Kube.Patch(ctx, attachment, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	if _, err := cloud.CloudServer.Volumes().Attach(ctx, pv.Spec.CSI.VolumeHandle, plugin.Spec.Drivers[0].NodeID); err != nil {
		return fmt.Errorf("attaching %s to %s: %w", pv.Name, attachment.Spec.NodeName, err)
	}
	before = attachment.DeepCopy()
	attachment.Status.Attached = true
	return s.Kube.Status().Patch(ctx, attachment, client.MergeFrom(before))
}

func (s *StandIn) detach(ctx context.Context, cloud *gobizfly.Client, attachment *storagev1.VolumeAttachment, id string) error {
	volume, err := cloud.CloudServer.Volumes().Get(ctx, id)
	if err != nil && !errors.Is(err, gobizfly.ErrNotFound) {
		return fmt.Errorf("reading volume %s: %w", id, err)
	}
	// From where it really is: the node may be gone already, and its server with it.
	if err == nil && len(volume.Attachments) > 0 {
		if _, err := cloud.CloudServer.Volumes().Detach(ctx, id, volume.Attachments[0].ServerID); err != nil {
			return fmt.Errorf("detaching volume %s: %w", id, err)
		}
	}
	before := attachment.DeepCopy()
	controllerutil.RemoveFinalizer(attachment, finalizer)
	return s.Kube.Patch(ctx, attachment, client.MergeFrom(before))
}

// ignoreGone drops what is no error to who looks again in half a second.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, gobizfly.ErrNotFound) {
		return nil
	}
	return err
}
