// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

func checkAutoscalers(ctx context.Context, d *examination) ([]Finding, error) {
	deployments := &appsv1.DeploymentList{}
	if err := d.List(ctx, deployments); err != nil {
		return nil, err
	}
	found, err := checkAutoscalerStatus(ctx, d)
	if err != nil {
		d.Note("a cluster-autoscaler outside the cluster was not looked for: %s", err)
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		name := deployment.Namespace + "/" + deployment.Name
		images := strings.Join(lo.Map(deployment.Spec.Template.Spec.Containers, func(c corev1.Container, _ int) string { return c.Image }), " ")
		remove := fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=0", deployment.Namespace, deployment.Name)
		switch {
		case deployment.Labels["app.kubernetes.io/name"] == operator.Name:
			if d.Deployment != nil && client.ObjectKeyFromObject(d.Deployment) != client.ObjectKeyFromObject(deployment) {
				found = append(found, one("AnotherKarpenter", Error, fmt.Sprintf("the Deployment %s is a second installation of this controller", name),
					"two controllers launch servers for the same pods and delete each other's", remove)...)
			}
		case lo.FromPtrOr(deployment.Spec.Replicas, 1) == 0:
		case lo.SomeBy(deployment.Spec.Template.Spec.Containers, isKarpenter):
			found = append(found, one("AnotherKarpenter", Error, fmt.Sprintf("the Deployment %s looks like another Karpenter", name),
				"it acts on the same NodePools and NodeClaims, so both launch and delete nodes", remove)...)
		case strings.Contains(images, "cluster-autoscaler") || strings.Contains(deployment.Name, "cluster-autoscaler"):
			found = append(found, one("ClusterAutoscaler", Warning, fmt.Sprintf("the Deployment %s is a cluster-autoscaler", name),
				"both see the same pending pods: each launches a node for them, and you pay for two", remove)...)
		}
	}
	return found, nil
}

// isKarpenter reports whether a container runs the controller of another Karpenter, such as public.ecr.aws/karpenter/controller. Dashboards and
// exporters have the word in their images, too. The older provider for BizFly Cloud has an image of this controller's name, without its label.
func isKarpenter(container corev1.Container) bool {
	image, _, _ := strings.Cut(container.Image, "@")
	folders, name := path.Split(image)
	name, _, _ = strings.Cut(name, ":")
	return name == "karpenter" || name == "controller" && lo.Contains(strings.Split(folders, "/"), "karpenter") || strings.HasPrefix(name, "karpenter-provider-")
}

// statusFresh is how long ago a cluster-autoscaler that still works has written its status, which it does every 10 s.
const statusFresh = 10 * time.Minute

// checkAutoscalerStatus looks for a cluster-autoscaler that runs outside the cluster, as BKE's does: it writes its status into it.
func checkAutoscalerStatus(ctx context.Context, d *examination) ([]Finding, error) {
	status := &corev1.ConfigMap{}
	err := d.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "cluster-autoscaler-status"}, status)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	written, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", status.Annotations["cluster-autoscaler.kubernetes.io/last-updated"])
	if err != nil || time.Since(written) > statusFresh {
		return nil, nil //nolint:nilerr // without a time it is not known to work
	}
	return one("ClusterAutoscaler", Warning, "a cluster-autoscaler has written its status into ConfigMap kube-system/cluster-autoscaler-status at "+
		written.UTC().Format(time.RFC3339), "it and Karpenter see the same pending pods: each launches a node for them, and you pay for two",
		"kubectl bizfly pool pin --all (kubectl -n kube-system describe configmap cluster-autoscaler-status shows which pools it scales)"), nil
}

// checkBuffers looks for CapacityBuffers that another component provides: core does not look at their strategy, and launches nodes for them too.
func checkBuffers(ctx context.Context, d *examination) ([]Finding, error) {
	if !d.Core.FeatureGates.CapacityBuffer {
		return nil, nil
	}
	buffers := &autoscalingv1beta1.CapacityBufferList{}
	if err := d.List(ctx, buffers); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, err
	}
	foreign := lo.FilterMap(buffers.Items, func(b autoscalingv1beta1.CapacityBuffer, _ int) (string, bool) {
		strategy := lo.FromPtr(b.Spec.ProvisioningStrategy)
		return fmt.Sprintf("%s/%s (%s)", b.Namespace, b.Name, strategy), strategy != "" && strategy != autoscalingv1beta1.ActiveProvisioningStrategy
	})
	if len(foreign) == 0 {
		return nil, nil
	}
	return one("BufferStrategyForeign", Warning, "CapacityBuffers name a strategy of another component in spec.provisioningStrategy: "+list(foreign),
		"Karpenter ignores the strategy and keeps running nodes for them as well, so that you pay for the capacity twice",
		"delete them, or set spec.provisioningStrategy to "+autoscalingv1beta1.ActiveProvisioningStrategy), nil
}

// initializing is how long the cloud controller manager may take with a node that has just joined.
const initializing = time.Minute

func checkCCM(ctx context.Context, d *examination) ([]Finding, error) {
	nodes := &corev1.NodeList{}
	if err := d.List(ctx, nodes); err != nil {
		return nil, err
	}
	var found []Finding
	var uninitialized, foreign, zoneless []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		_, ours := providerid.Parse(node.Spec.ProviderID)
		// Karpenter needs the provider ID of the nodes that it launched, and of no other.
		if lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/uninitialized" }) ||
			!ours && node.Labels[karpv1.NodePoolLabelKey] != "" {
			if time.Since(node.CreationTimestamp.Time) < initializing {
				continue
			}
			uninitialized = append(uninitialized, node.Name)
			continue
		}
		if !ours {
			foreign = append(foreign, node.Name)
		}
		if zone := node.Labels[corev1.LabelTopologyZone]; zone == "" || d.unknownZone(ctx, zone) {
			zoneless = append(zoneless, fmt.Sprintf("%s (%q)", node.Name, zone))
		}
	}
	if len(uninitialized) > 0 {
		found = append(found, one("NodesUninitialized", Error, "the cloud controller manager has not initialized "+list(uninitialized),
			"Karpenter recognises a node by its provider ID, so a node without one is replaced after 15 minutes",
			"kubectl -n kube-system logs -l k8s-app=bizfly-cloud-controller-manager (on BKE it runs outside the cluster: ask BizFly Cloud's support)")...)
	}
	if len(foreign) > 0 {
		found = append(found, one("ForeignNodes", Warning, "these nodes have no provider ID of BizFly Cloud: "+list(foreign),
			"Karpenter neither prices nor manages them", "kubectl get nodes -o custom-columns=NAME:.metadata.name,ID:.spec.providerID")...)
	}
	if len(zoneless) > 0 {
		found = append(found, one("ZoneLabelWrong", Warning, "the label topology.kubernetes.io/zone is no zone of the region on "+list(zoneless),
			"pods that are spread over zones, or whose volume is in one, do not fit there",
			"kubectl -n kube-system rollout restart daemonset -l k8s-app=bizfly-cloud-controller-manager (on BKE: ask BizFly Cloud's support)")...)
	}
	return found, nil
}

// unknownZone reports whether the zone is known not to exist.
func (d *examination) unknownZone(ctx context.Context, name string) bool {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return false
	}
	snapshot, err := cloud.Catalog.Snapshot()
	return err == nil && !lo.ContainsBy(snapshot.Zones(), func(z catalog.Zone) bool { return z.Name == name })
}

func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func checkCSI(ctx context.Context, d *examination) ([]Finding, error) {
	driver := &storagev1.CSIDriver{}
	var found []Finding
	err := d.Get(ctx, types.NamespacedName{Name: v1alpha1.CSIBlockDriver}, driver)
	switch {
	case apierrors.IsNotFound(err):
		found = one("CSIDriverMissing", Info, fmt.Sprintf("the cluster has no CSI driver %s", v1alpha1.CSIBlockDriver),
			"pods with volumes of BizFly Cloud cannot run", "kubectl get csidrivers")
	case err != nil:
		return nil, err
	}
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return found, nil //nolint:nilerr // the check of the credentials reports it
	}
	volumes, err := cloud.API.ListVolumes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	handles, err := d.volumeHandles(ctx)
	if err != nil {
		d.Note("billing plans of volumes are not compared: %s", err)
	}
	plans, ofPods := d.billingPlans(ctx), map[string]bool{}
	var differ []string
	for _, volume := range volumes {
		if !strings.HasPrefix(volume.Name, instance.CSIVolumePrefix) || volume.BillingPlan == "" {
			continue
		}
		ofPods[volume.BillingPlan] = true
		if handles.Has(volume.ID) && !lo.Contains(plans, normalPlan(volume.BillingPlan)) {
			differ = append(differ, fmt.Sprintf("%s (%s)", volume.Name, volume.BillingPlan))
		}
	}
	if len(ofPods) > 0 {
		d.know("billing plans of volumes of pods", "%s", strings.Join(slices.Sorted(maps.Keys(ofPods)), ", "))
	} else {
		d.leave("billing plans of volumes of pods", "the CSI driver names none, and the project has no such volume")
	}
	if len(differ) > 0 {
		found = append(found, one("VolumeBillingPlan", Warning,
			fmt.Sprintf("volumes of pods are billed by another plan than servers (%s): %s", strings.Join(plans, ", "), list(differ)),
			"BizFly Cloud does not attach resources of different billing plans to each other, so their pods never start on nodes of Karpenter",
			"kubectl get pv (the CSI driver has no parameter for the plan: docs/how-to/volumes.md shows what to do)")...)
	}
	return found, nil
}

// normalPlan writes a billing plan without case and separators, as it is written differently in places.
func normalPlan(plan string) string { return strings.ToLower(strings.ReplaceAll(plan, "_", "")) }

// billingPlans are those of the NodeClasses, the default one if there is none.
func (d *examination) billingPlans(ctx context.Context) []string {
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	_ = d.List(ctx, nodeClasses)
	if len(nodeClasses.Items) == 0 {
		nodeClasses.Items = make([]v1alpha1.BizflyNodeClass, 1)
	}
	return lo.Uniq(lo.Map(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass, _ int) string { return normalPlan(string(n.EffectiveBillingPlan())) }))
}
