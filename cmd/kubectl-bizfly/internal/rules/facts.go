// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// setup is the controller and its settings, as far as they are known. It says how commands have to be written, and
// never fails.
type setup struct {
	*connect.Session
}

// installed reports whether a controller runs in the cluster.
func (s setup) installed() bool { return s.Deployment != nil }

// namespace is that of the controller.
func (s setup) namespace() string {
	if s.Deployment != nil {
		return s.Deployment.Namespace
	}
	return lo.CoalesceOrEmpty(s.Settings.Namespace, "karpenter")
}

// upgrade is the command that installs or upgrades a chart, in the release that the documentation names.
func (s setup) upgrade(chart string) string {
	part := strings.TrimPrefix(chart, "karpenter-provider-bizflycloud")
	return fmt.Sprintf("helm upgrade --install karpenter%s charts/karpenter-provider-bizflycloud%s --namespace %s", part,
		part, s.namespace())
}

// set is the command that sets a value of the chart.
func (s setup) set(value string) string {
	return fmt.Sprintf("helm upgrade karpenter charts/karpenter-provider-bizflycloud --namespace %s "+
		"--reset-then-reuse-values --set %s", s.namespace(), value)
}

// listFact is a fact that is all objects of a kind.
func listFact[T any, L interface {
	*T
	client.ObjectList
}](name string, opts ...client.ListOption) *fact[L] {
	return newFact(name, func(ctx context.Context, r *reading) (L, error) {
		list := L(new(T))
		return list, r.List(ctx, list, opts...)
	})
}

// ownFact is the same for a kind that the cluster does not know before the installation, and has none of then.
func ownFact[T any, L interface {
	*T
	client.ObjectList
}](name string) *fact[L] {
	return newFact(name, func(ctx context.Context, r *reading) (L, error) {
		list := L(new(T))
		err := r.List(ctx, list)
		return list, lo.Ternary(connect.IsMissing(err), nil, err)
	})
}

// optional is an object that there may be; nil where there is none.
func optional[O client.Object](ctx context.Context, r *reading, key types.NamespacedName, object O) (O, error) {
	var none O
	err := r.Get(ctx, key, object)
	if apierrors.IsNotFound(err) || connect.IsMissing(err) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	return object, nil
}

var (
	factSetup = newFact("settings of the controller", func(_ context.Context, r *reading) (setup, error) {
		return setup{r.Session}, nil
	})

	// factConnection is why the cluster cannot be read; nil where it can.
	factConnection = newFact("connection to the cluster", func(_ context.Context, r *reading) (error, error) {
		return lo.Ternary(r.Cluster == nil, r.ClusterErr, nil), nil
	})

	factVersion = newFact("version of the API server", func(_ context.Context, r *reading) (*utilversion.Version, error) {
		if r.Kubernetes == nil {
			return nil, cmp.Or(r.ClusterErr, errNotReached)
		}
		info, err := r.Kubernetes.Discovery().ServerVersion()
		if err != nil {
			return nil, err
		}
		return utilversion.ParseGeneric(info.GitVersion)
	})

	factDefinitions = listFact[apiextensionsv1.CustomResourceDefinitionList]("custom resource definitions")

	// factController is the controller's Deployment; nil where there is none.
	factController = newFact("controller", func(_ context.Context, r *reading) (*appsv1.Deployment, error) {
		if r.DeploymentErr != nil || r.Cluster == nil {
			return nil, cmp.Or(r.DeploymentErr, r.ClusterErr)
		}
		return r.Deployment, nil
	})

	factGrants = newFact("rights of the controller", readGrants)

	factDeployments = listFact[appsv1.DeploymentList]("Deployments")

	factAutoscalerStatus = newFact("status of a cluster-autoscaler", func(ctx context.Context,
		r *reading) (*corev1.ConfigMap, error) {
		return optional(ctx, r, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "cluster-autoscaler-status"},
			&corev1.ConfigMap{})
	})

	factNodes = listFact[corev1.NodeList]("nodes")

	factPoolNodes = listFact[corev1.NodeList]("nodes of BKE's pools", bke.SelectPoolNodes)

	factNodePools = listFact[karpv1.NodePoolList]("NodePools")

	factNodeClasses = ownFact[v1alpha1.BizflyNodeClassList]("BizflyNodeClasses")

	factNodeClaims = ownFact[karpv1.NodeClaimList]("NodeClaims")

	factOverlays = ownFact[karpv1alpha1.NodeOverlayList]("NodeOverlays")

	factProviderConfig = newFact("ProviderConfig", func(ctx context.Context, r *reading) (*v1alpha1.ProviderConfig,
		error) {
		return optional(ctx, r, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, &v1alpha1.ProviderConfig{})
	})

	// factEvents are those of NodeClaims, NodePools and BizflyNodeClasses, of which the controller reports failed launches.
	factEvents = newFact("events of launches", func(ctx context.Context, r *reading) ([]corev1.Event, error) {
		var all []corev1.Event
		for _, kind := range []string{"NodeClaim", "NodePool", "BizflyNodeClass"} {
			list := &corev1.EventList{}
			if err := r.List(ctx, list, connect.EventsOf(kind)...); err != nil {
				return nil, err
			}
			all = append(all, list.Items...)
		}
		return all, nil
	})

	factCSIDriver = newFact("CSI driver", func(ctx context.Context, r *reading) (*storagev1.CSIDriver, error) {
		return optional(ctx, r, types.NamespacedName{Name: v1alpha1.CSIBlockDriver}, &storagev1.CSIDriver{})
	})

	// factHandles are the ids of the volumes that PersistentVolumes of this cluster name.
	factHandles = newFact("PersistentVolumes", func(ctx context.Context, r *reading) (sets.Set[string], error) {
		persistent := &corev1.PersistentVolumeList{}
		if err := r.List(ctx, persistent); err != nil {
			return nil, err
		}
		return sets.New(lo.FilterMap(persistent.Items, func(v corev1.PersistentVolume, _ int) (string, bool) {
			return lo.FromPtr(v.Spec.CSI).VolumeHandle, v.Spec.CSI != nil
		})...), nil
	})

	// factMetadataPolicy reports whether a policy for the pods of all namespaces denies the metadata service.
	factMetadataPolicy = newFact("policies of the network plugin", func(ctx context.Context, r *reading) (bool, error) {
		for _, kind := range clusterPolicies {
			policies := &unstructured.UnstructuredList{}
			policies.SetGroupVersionKind(kind)
			if err := r.List(ctx, policies); err != nil && !connect.IsMissing(err) {
				return false, err
			}
			if lo.ContainsBy(policies.Items, func(p unstructured.Unstructured) bool { return denies(p.Object, false) }) {
				return true, nil
			}
		}
		return false, nil
	})

	// factTime is when the reading began.
	factTime = newFact("time", func(context.Context, *reading) (time.Time, error) { return time.Now(), nil })
)

// errNotReached says that the API server itself is not at hand, but only what it holds.
var errNotReached = errors.New("the API server was not asked")

// grants are what the roles that are bound to the controller's service account allow.
type grants struct {
	account string
	rules   []rbacv1.PolicyRule
}

func readGrants(ctx context.Context, r *reading) (grants, error) {
	controller, err := factController.in(ctx, r)
	if err != nil {
		return grants{}, err
	}
	if controller == nil {
		return grants{}, nothingToCheckError("no controller is installed")
	}
	account := lo.CoalesceOrEmpty(controller.Spec.Template.Spec.ServiceAccountName, "default")
	bindings, roles := &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}
	if err := r.List(ctx, bindings); err != nil {
		return grants{}, err
	}
	if err := r.List(ctx, roles); err != nil {
		return grants{}, err
	}
	byName := lo.KeyBy(roles.Items, func(role rbacv1.ClusterRole) string { return role.Name })
	granted := grants{account: controller.Namespace + "/" + account}
	for _, binding := range bindings.Items {
		if lo.ContainsBy(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && s.Namespace == controller.Namespace
		}) {
			granted.rules = append(granted.rules, byName[binding.RoleRef.Name].Rules...)
		}
	}
	return granted, nil
}
