// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// statusFresh is how long ago a cluster-autoscaler that still works has written its status, which it does every 10 s.
const statusFresh = 10 * time.Minute

// twoNodes is why two autoscalers cost money.
const twoNodes = "each launches a node for them, and you pay for two"

var autoscalerRules = []rule{
	{code: "AnotherKarpenter", about: "other autoscalers", severity: Error, given: given2(factDeployments, factSetup,
		otherKarpenters)},
	{code: "ClusterAutoscaler", about: "other autoscalers", severity: Warning, why: "both see the same pending pods: " +
		twoNodes,
		given: given1(factDeployments, func(deployments *appsv1.DeploymentList) outcome {
			return found(lo.FilterMap(deployments.Items, func(d appsv1.Deployment, _ int) (Finding, bool) {
				images := strings.Join(lo.Map(d.Spec.Template.Spec.Containers, func(c corev1.Container, _ int) string {
					return c.Image
				}), " ")
				return Finding{What: fmt.Sprintf("the Deployment %s/%s is a cluster-autoscaler", d.Namespace, d.Name),
						Fix: scaleToZero(&d)},
					runsAsIs(&d) && !isOurs(&d) && !lo.SomeBy(d.Spec.Template.Spec.Containers, isKarpenter) &&
						(strings.Contains(images, "cluster-autoscaler") || strings.Contains(d.Name, "cluster-autoscaler"))
			})...)
		})},
	// One that runs outside the cluster, as BKE's does, writes its status into it.
	{code: "ClusterAutoscaler", about: "other autoscalers", severity: Warning,
		why: "it and Karpenter see the same pending pods: " + twoNodes,
		fix: "kubectl bizfly pool pin --all (kubectl -n kube-system describe configmap cluster-autoscaler-status shows " +
			"which pools it scales)",
		given: given2(factAutoscalerStatus, factTime, func(status *corev1.ConfigMap, now time.Time) outcome {
			// Without a time it is not known to work.
			written, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST",
				lo.FromPtr(status).Annotations["cluster-autoscaler.kubernetes.io/last-updated"])
			return failsIf(err == nil && now.Sub(written) <= statusFresh, "a cluster-autoscaler has written its status into "+
				"ConfigMap kube-system/cluster-autoscaler-status at %s", written.UTC().Format(time.RFC3339))
		})},
}

// otherKarpenters are the Deployments of this controller but for the one that is known, and those of other providers.
func otherKarpenters(deployments *appsv1.DeploymentList, s setup) outcome {
	return found(lo.FilterMap(deployments.Items, func(d appsv1.Deployment, _ int) (Finding, bool) {
		name := d.Namespace + "/" + d.Name
		if isOurs(&d) {
			return Finding{What: fmt.Sprintf("the Deployment %s is a second installation of this controller", name),
					Why: "two controllers launch servers for the same pods and delete each other's", Fix: scaleToZero(&d)},
				s.Deployment != nil && client.ObjectKeyFromObject(s.Deployment) != client.ObjectKeyFromObject(&d)
		}
		return Finding{What: fmt.Sprintf("the Deployment %s looks like another Karpenter", name),
				Why: "it acts on the same NodePools and NodeClaims, so both launch and delete nodes", Fix: scaleToZero(&d)},
			runsAsIs(&d) && lo.SomeBy(d.Spec.Template.Spec.Containers, isKarpenter)
	})...)
}

func isOurs(d *appsv1.Deployment) bool { return d.Labels["app.kubernetes.io/name"] == operator.Name }

func runsAsIs(d *appsv1.Deployment) bool { return lo.FromPtrOr(d.Spec.Replicas, 1) > 0 }

func scaleToZero(d *appsv1.Deployment) string {
	return fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=0", d.Namespace, d.Name)
}

// isKarpenter reports whether a container runs the controller of another Karpenter, such as
// public.ecr.aws/karpenter/controller. Dashboards and exporters have the word in their images, too. The older provider
// for BizFly Cloud has an image of this controller's name, without its label.
func isKarpenter(container corev1.Container) bool {
	image, _, _ := strings.Cut(container.Image, "@")
	folders, name := path.Split(image)
	name, _, _ = strings.Cut(name, ":")
	return name == "karpenter" || name == "controller" && lo.Contains(strings.Split(folders, "/"), "karpenter") ||
		strings.HasPrefix(name, "karpenter-provider-")
}

// overlayRules look for NodeOverlays that change nothing.
var overlayRules = []rule{{
	code: "NodeOverlayUnused", about: "node overlays", severity: Warning, why: "prices and sizes are those of the " +
		"catalog, as if it did not exist",
	given: given2(factOverlays, factSetup, func(overlays *karpv1alpha1.NodeOverlayList, s setup) outcome {
		if len(overlays.Items) == 0 {
			return inapplicable("there is no NodeOverlay")
		}
		return found(lo.FilterMap(overlays.Items, func(o karpv1alpha1.NodeOverlay, _ int) (Finding, bool) {
			if !s.Core.FeatureGates.NodeOverlay {
				return Finding{What: fmt.Sprintf("NodeOverlay %s is not used: the feature gate NodeOverlay is off", o.Name),
					Fix: s.set("settings.featureGates.nodeOverlay=true")}, true
			}
			cause := notReady(&o)
			return Finding{What: fmt.Sprintf("NodeOverlay %s is not used: %s", o.Name, cause),
				Fix: "kubectl describe nodeoverlay " + o.Name}, cause != ""
		})...)
	}),
}}

// initializing is how long the cloud controller manager may take with a node that has just joined.
const initializing = time.Minute

var ccmRules = []rule{
	{code: "NodesUninitialized", about: "cloud controller manager", severity: Error,
		why: "Karpenter recognises a node by its provider ID, so a node without one is replaced after 15 minutes",
		fix: "kubectl -n kube-system logs -l k8s-app=bizfly-cloud-controller-manager (on BKE it runs outside the cluster: " +
			"ask BizFly Cloud's support)",
		given: given2(factNodes, factTime, func(nodes *corev1.NodeList, now time.Time) outcome {
			late := namesOf(nodes, func(n *corev1.Node) bool {
				return uninitialized(n) && now.Sub(n.CreationTimestamp.Time) >= initializing
			})
			return failsIf(len(late) > 0, "the cloud controller manager has not initialized %s", list(late))
		})},
	{code: "ZoneLabelWrong", about: "cloud controller manager", severity: Warning,
		why: "pods that are spread over zones, or whose volume is in one, do not fit there",
		fix: "kubectl -n kube-system rollout restart daemonset -l k8s-app=bizfly-cloud-controller-manager (on BKE: ask " +
			"BizFly Cloud's support)",
		given: given2(factNodes, factCatalog, func(nodes *corev1.NodeList, snapshot *catalog.Snapshot) outcome {
			zones := lo.SliceToMap(snapshot.Zones(), func(z catalog.Zone) (string, bool) { return z.Name, true })
			wrong := lo.FilterMap(nodes.Items, func(n corev1.Node, _ int) (string, bool) {
				zone := n.Labels[corev1.LabelTopologyZone]
				return fmt.Sprintf("%s (%q)", n.Name, zone), !uninitialized(&n) && !zones[zone]
			})
			return failsIf(len(wrong) > 0, "the label topology.kubernetes.io/zone is no zone of the region on %s", list(wrong))
		})},
}

func ours(node *corev1.Node) bool {
	_, is := providerid.Parse(node.Spec.ProviderID)
	return is
}

// uninitialized reports whether the cloud controller manager has not finished with a node. Karpenter needs the provider
// ID of the nodes that it launched, and of no other.
func uninitialized(node *corev1.Node) bool {
	return lo.ContainsBy(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/uninitialized" }) ||
		!ours(node) && node.Labels[karpv1.NodePoolLabelKey] != ""
}

func namesOf(nodes *corev1.NodeList, which func(*corev1.Node) bool) []string {
	return lo.FilterMap(nodes.Items, func(n corev1.Node, _ int) (string, bool) { return n.Name, which(&n) })
}

var volumeRules = []rule{
	{code: "CSIDriverMissing", about: "volumes", severity: Info, why: "pods with volumes of BizFly Cloud cannot run",
		fix: "kubectl get csidrivers",
		given: given1(factCSIDriver, func(driver *storagev1.CSIDriver) outcome {
			return failsIf(driver == nil, "the cluster has no CSI driver %s", v1alpha1.CSIBlockDriver)
		})},
	{code: "VolumeBillingPlan", about: "volumes", severity: Warning,
		why: "BizFly Cloud does not attach resources of different billing plans to each other, so their pods never start on " +
			"nodes of Karpenter",
		fix: "kubectl get pv (the CSI driver has no parameter for the plan: docs/how-to/volumes.md shows what to do)",
		given: given3(factVolumes, factHandles, factNodeClasses,
			func(volumes []*gobizfly.Volume, handles sets.Set[string], nodeClasses *v1alpha1.BizflyNodeClassList) outcome {
				ofPods := lo.Filter(volumes, func(v *gobizfly.Volume, _ int) bool {
					return strings.HasPrefix(v.Name, instance.CSIVolumePrefix) && v.BillingPlan != ""
				})
				const name = "billing plans of volumes of pods"
				if len(ofPods) == 0 {
					return positive(Known{Name: name, Unknown: "the CSI driver names none, and the project has no such volume"})
				}
				plans := billingPlans(nodeClasses.Items)
				differ := lo.FilterMap(ofPods, func(v *gobizfly.Volume, _ int) (string, bool) {
					return fmt.Sprintf("%s (%s)", v.Name, v.BillingPlan), handles.Has(v.ID) && !lo.Contains(plans,
						normalPlan(v.BillingPlan))
				})
				seen := sets.List(sets.New(lo.Map(ofPods, func(v *gobizfly.Volume, _ int) string { return v.BillingPlan })...))
				result := failsIf(len(differ) > 0, "volumes of pods are billed by another plan than servers (%s): %s",
					strings.Join(plans, ", "), list(differ))
				result.known = []Known{{Name: name, Value: strings.Join(seen, ", ")}}
				return result
			})},
}

// normalPlan writes a billing plan without case and separators, as it is written differently in places.
func normalPlan(plan string) string { return strings.ToLower(strings.ReplaceAll(plan, "_", "")) }

// billingPlans are those of the NodeClasses, the default one if there is none.
func billingPlans(nodeClasses []v1alpha1.BizflyNodeClass) []string {
	if len(nodeClasses) == 0 {
		nodeClasses = make([]v1alpha1.BizflyNodeClass, 1)
	}
	return lo.Uniq(lo.Map(nodeClasses, func(n v1alpha1.BizflyNodeClass, _ int) string {
		return normalPlan(string(n.EffectiveBillingPlan()))
	}))
}

const metadataAddress = "169.254.169.254"

// clusterPolicies are the kinds of policies that hold for the pods of all namespaces.
var clusterPolicies = []schema.GroupVersionKind{
	{Group: "cilium.io", Version: "v2", Kind: "CiliumClusterwideNetworkPolicy"},
	{Group: "projectcalico.org", Version: "v3", Kind: "GlobalNetworkPolicy"},
	{Group: "crd.projectcalico.org", Version: "v1", Kind: "GlobalNetworkPolicy"},
}

// metadataRules look for what keeps pods from the metadata service, from which every pod could otherwise read the user
// data of its node and the join token of BKE. A NodeClass has no effect on the nodes of BKE's pools, whose servers have
// the same token. Whether a policy works is not tried.
var metadataRules = []rule{
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod can read the user data and the join token of its node there, and join a node of its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there), or set " +
			"metadataOptions.podAccess of the NodeClass to Blocked",
		given: given2(factNodeClasses, factMetadataPolicy, func(all *v1alpha1.BizflyNodeClassList, guarded bool) outcome {
			open := lo.FilterMap(all.Items, func(n v1alpha1.BizflyNodeClass, _ int) (string, bool) {
				return n.Name, !podAccessEnforced(&n)
			})
			return failsIf(!guarded && len(open) > 0, "nothing is found that keeps pods from the metadata service: BizflyNodeClass %s "+
				"does not block it by a %s that is True, and no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy "+
				"denies %s", list(open), v1alpha1.ConditionTypePodAccessEnforced, metadataAddress)
		})},
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod there can read the join token, which is the same for all nodes of the BKE cluster, and join a node of " +
			"its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there; with kube-router, let only " +
			"trusted pods run on these nodes)",
		given: given2(factPoolNodes, factMetadataPolicy, func(nodes *corev1.NodeList, guarded bool) outcome {
			return failsIf(!guarded && len(nodes.Items) > 0, "nothing is found that keeps pods on BKE's pool nodes %s from the "+
				"metadata service: no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy denies %s, and a "+
				"BizflyNodeClass does not apply there",
				list(namesOf(nodes, func(*corev1.Node) bool { return true })), metadataAddress)
		})},
}

// podAccessEnforced reports whether the metadataOptions of a NodeClass keep pods from the metadata service.
func podAccessEnforced(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessBlocked &&
		nodeClass.StatusConditions(opstatus.WithObservedOnly()).Get(v1alpha1.ConditionTypePodAccessEnforced).IsTrue()
}

// denies reports whether a policy names the metadata service in what it denies, or leaves out of what it allows.
func denies(part any, denied bool) bool {
	switch v := part.(type) {
	case string:
		return denied && strings.Contains(v, metadataAddress)
	case []any:
		return lo.ContainsBy(v, func(each any) bool { return denies(each, denied) })
	case map[string]any:
		denied = denied || v["action"] == "Deny"
		return lo.ContainsBy(lo.Entries(v), func(e lo.Entry[string, any]) bool {
			return denies(e.Value, denied || slices.Contains([]string{"egressDeny", "except", "notNets"}, e.Key))
		})
	}
	return false
}

// sortedKeys are the keys of a map by name.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
