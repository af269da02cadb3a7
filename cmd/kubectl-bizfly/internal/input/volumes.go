// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// binder does what the controllers of a cluster do with claims before their pods are placed.
type binder struct {
	set     *Set
	classes map[string]*storagev1.StorageClass
	volumes []*corev1.PersistentVolume
	taken   map[string]*corev1.PersistentVolume
	// assumed are classes that are not as the input has them.
	assumed []client.Object
}

// takeClaims leaves out the claims of StatefulSets that exist, in the files or in the cluster: their pods use these.
func (s *Set) takeClaims(cluster memory.Objects) {
	made := func(claim *corev1.PersistentVolumeClaim) bool { return s.sources[claim].kind != "" }
	there := map[client.ObjectKey]bool{}
	for _, claim := range slices.Concat(memory.Of[*corev1.PersistentVolumeClaim](cluster), memory.Of[*corev1.PersistentVolumeClaim](s.Objects)) {
		there[client.ObjectKeyFromObject(claim)] = there[client.ObjectKeyFromObject(claim)] || !made(claim)
	}
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		return ok && made(claim) && there[client.ObjectKeyFromObject(claim)]
	})
}

// bindVolumes makes the claims of the set's pods such as they are when kube-scheduler looks at the pods, and adds what the files lack.
func (s *Set) bindVolumes(objects memory.Objects) memory.Objects {
	b := &binder{set: s, volumes: available(objects), taken: map[string]*corev1.PersistentVolume{},
		classes: lo.KeyBy(memory.Of[*storagev1.StorageClass](objects), func(c *storagev1.StorageClass) string { return c.Name })}
	known := lo.KeyBy(memory.Of[*corev1.PersistentVolumeClaim](objects), func(c *corev1.PersistentVolumeClaim) client.ObjectKey {
		return client.ObjectKeyFromObject(c)
	})
	claims := memory.Of[*corev1.PersistentVolumeClaim](s.Objects)
	for _, pod := range s.Pods() {
		for _, volume := range pod.Spec.Volumes {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace}}
			switch {
			case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
				claim.Name, claim.Spec = pod.Name+"-"+volume.Name, *volume.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy()
			case volume.PersistentVolumeClaim != nil:
				claim.Name = volume.PersistentVolumeClaim.ClaimName
			default:
				continue
			}
			if key := client.ObjectKeyFromObject(claim); known[key] == nil {
				known[key], claims = claim, append(claims, claim)
				if volume.Ephemeral == nil {
					s.noteOf("PersistentVolumeClaims that pods use are not in the files (%s): they are planned as new volumes; "+
						"if they exist, add them with their PersistentVolumes, whose zones the pods follow", key.String())
				}
				objects = append(objects, claim)
			}
		}
	}
	for _, claim := range claims {
		b.bind(claim)
	}
	return objects.With(b.assumed...)
}

func (b *binder) bind(claim *corev1.PersistentVolumeClaim) {
	name := claim.Namespace + "/" + claim.Name
	if claim.Spec.StorageClassName == nil {
		claim.Spec.StorageClassName = lo.ToPtr(cmp.Or(b.defaultClass(), assumedClass))
	}
	if volume := b.volumeFor(claim); volume != nil {
		b.taken[volume.Name] = volume
		claim.Spec.VolumeName = volume.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volumehelper.AnnBindCompleted, "yes")
		return
	}
	if claim.Spec.VolumeName != "" {
		b.set.noteOf("PersistentVolumes of claims are not in the files (%s): their pods are planned in any zone; add them (kubectl get pv -o yaml)",
			claim.Spec.VolumeName+" of "+name)
		claim.Spec.VolumeName, claim.Status = "", corev1.PersistentVolumeClaimStatus{}
	}
	if *claim.Spec.StorageClassName == "" {
		b.set.noteOf("no PersistentVolume is for claims whose storageClassName is empty (%s): their pods are planned in any zone; add one for each", name)
		claim.Spec.StorageClassName = lo.ToPtr(assumedClass)
	}
	class, known := b.classes[*claim.Spec.StorageClassName]
	waits := lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer)
	switch {
	case !known:
		// One that is not known binds to the node's zone, as those of BizFly Cloud do.
		class = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: *claim.Spec.StorageClassName}, Provisioner: v1alpha1.CSIBlockDriver}
		if class.Name != assumedClass {
			b.set.noteOf("StorageClasses are not in the files (%s): their volumes are planned in the zones of their pods; "+
				"add them if they are of another kind", class.Name)
		}
	case lo.FromPtrOr(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate:
		// The volume is there before the pod is placed, in a zone that its driver chooses among the allowed ones.
		class = class.DeepCopy()
		b.set.noteOf("StorageClasses create volumes before their pods have a node (%s), in zones that are not known here: "+
			"the pods are planned in any zone that they allow", class.Name)
	default:
		return
	}
	class.VolumeBindingMode = waits
	b.classes[class.Name], b.assumed = class, append(b.assumed, class)
}

// defaultClass is the newest of those that are marked, as an API server chooses.
func (b *binder) defaultClass() string {
	marked := lo.Filter(lo.Values(b.classes), func(class *storagev1.StorageClass, _ int) bool {
		return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
	})
	slices.SortFunc(marked, func(x, y *storagev1.StorageClass) int {
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	return lo.FromPtr(lo.FirstOrEmpty(marked)).Name
}

// assumedClass is that of claims which name none, where there is no default.
const assumedClass = "assumed-default"

// available are the volumes by name, as the PersistentVolume controller sees them.
func available(objects memory.Objects) []*corev1.PersistentVolume {
	var volumes []*corev1.PersistentVolume
	for _, v := range memory.Of[*corev1.PersistentVolume](objects) {
		v = v.DeepCopy()
		v.Status.Phase = cmp.Or(v.Status.Phase, corev1.VolumeAvailable)
		if v.Status.Phase == corev1.VolumeBound && v.Spec.ClaimRef != nil {
			v.Spec.ClaimRef.UID = "" // a StatefulSet's claim that is not in the files has another one here
		}
		volumes = append(volumes, v)
	}
	slices.SortFunc(volumes, func(x, y *corev1.PersistentVolume) int { return cmp.Compare(x.Name, y.Name) })
	return volumes
}

// volumeFor is the volume that a claim names, or the smallest one that it can have.
func (b *binder) volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if name := claim.Spec.VolumeName; name != "" {
		return lo.FindOrElse(b.volumes, nil, func(v *corev1.PersistentVolume) bool { return v.Name == name })
	}
	volumes := lo.Filter(b.volumes, func(v *corev1.PersistentVolume, _ int) bool {
		return volumehelper.CheckAccessModes(claim, v)
	})
	found, err := volumehelper.FindMatchingVolume(claim, volumes, nil, b.taken, false, true)
	if err != nil {
		return nil // its selector is invalid, so that the API server rejects the claim
	}
	return found
}
