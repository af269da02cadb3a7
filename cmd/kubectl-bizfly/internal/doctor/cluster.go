// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// minimumVersion is the oldest Kubernetes that the provider supports.
const minimumVersion = "1.30.0"

// recently is how far back events are looked at.
const recently = 24 * time.Hour

// errNotReached says that the API server itself is not at hand, but only what it holds.
var errNotReached = errors.New("the API server was not asked")

func checkCluster(_ context.Context, d *examination) ([]Finding, error) {
	if d.Cluster != nil {
		return nil, nil
	}
	return one("ClusterUnreachable", Error, d.ClusterErr.Error(), "nothing in the cluster can be checked", "kubectl cluster-info"), nil
}

func checkVersion(_ context.Context, d *examination) ([]Finding, error) {
	if d.Kubernetes == nil {
		return nil, cmp.Or(d.ClusterErr, errNotReached)
	}
	info, err := d.Kubernetes.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	version, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, err
	}
	if version.AtLeast(utilversion.MustParseGeneric(minimumVersion)) {
		return nil, nil
	}
	return one("APIServerTooOld", Error, fmt.Sprintf("the API server is version %s, and %s or newer is needed", info.GitVersion, minimumVersion),
			"the validation rules of the custom resources are rejected by an older API server", "upgrade the cluster's Kubernetes version in the BizFly Cloud console"),
		nil
}

func checkDefinitions(ctx context.Context, d *examination) ([]Finding, error) {
	installed := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := d.List(ctx, installed); err != nil {
		return nil, err
	}
	byName := lo.KeyBy(installed.Items, func(crd apiextensionsv1.CustomResourceDefinition) string { return crd.Name })
	var missing, old []string
	for _, wanted := range apis.CRDs {
		// Its chart may leave it to another one, and without its feature gate the controller does not use it.
		if wanted.Spec.Names.Kind == "CapacityBuffer" && !d.Core.FeatureGates.CapacityBuffer {
			continue
		}
		live, ok := byName[wanted.Name]
		if !ok {
			missing = append(missing, wanted.Name)
			continue
		}
		if lacks := lackingFields(wanted, &live); len(lacks) > 0 {
			old = append(old, fmt.Sprintf("%s lacks %s", wanted.Name, strings.Join(lacks[:min(3, len(lacks))], ", ")))
		}
	}
	var found []Finding
	chart := operator.Name + "-crd"
	if len(missing) > 0 {
		found = append(found, one("DefinitionsMissing", lo.Ternary(d.installed(), Error, Info), "the cluster has no "+strings.Join(missing, ", "),
			"NodePools, NodeClaims and BizflyNodeClasses cannot be created", d.upgrade(chart))...)
	}
	if len(old) > 0 {
		found = append(found, one("DefinitionsOutdated", Error, strings.Join(old, "; "),
			"the API server drops fields that it does not know, so settings are silently lost. Helm never upgrades definitions by itself", d.upgrade(chart))...)
	}
	return found, nil
}

// lackingFields returns the paths that the definition of this release has and the live one lacks.
func lackingFields(wanted, live *apiextensionsv1.CustomResourceDefinition) []string {
	schemaOf := func(crd *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
		v, ok := lo.Find(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
		if !ok || v.Schema == nil {
			return &apiextensionsv1.JSONSchemaProps{}
		}
		return v.Schema.OpenAPIV3Schema
	}
	var lacks []string
	var compare func(path string, a, b *apiextensionsv1.JSONSchemaProps)
	compare = func(path string, a, b *apiextensionsv1.JSONSchemaProps) {
		for name := range a.Properties {
			property := a.Properties[name]
			other, ok := b.Properties[name]
			if !ok {
				lacks = append(lacks, strings.TrimPrefix(path+"."+name, "."))
				continue
			}
			compare(path+"."+name, &property, &other)
		}
		if a.Items != nil && a.Items.Schema != nil && b.Items != nil && b.Items.Schema != nil {
			compare(path+"[]", a.Items.Schema, b.Items.Schema)
		}
	}
	for _, version := range wanted.Spec.Versions {
		compare("", version.Schema.OpenAPIV3Schema, schemaOf(live, version.Name))
	}
	slices.Sort(lacks)
	return lacks
}

func checkController(_ context.Context, d *examination) ([]Finding, error) {
	if d.DeploymentErr != nil || d.Cluster == nil {
		return nil, cmp.Or(d.DeploymentErr, d.ClusterErr)
	}
	if d.Deployment == nil {
		return one("ControllerNotInstalled", Info, "no controller is installed", "this is a preflight: what depends on the controller is not checked",
			d.upgrade(operator.Name)), nil
	}
	var found []Finding
	name := d.Deployment.Namespace + "/" + d.Deployment.Name
	if d.Deployment.Status.ReadyReplicas == 0 {
		found = append(found, one("ControllerNotReady", Error, fmt.Sprintf("no replica of the Deployment %s is ready", name),
			"no node is launched, and none is deleted", fmt.Sprintf("kubectl -n %s logs deployment/%s --all-pods --tail=20", d.Deployment.Namespace,
				d.Deployment.Name))...)
	}
	if skew := d.Skew(); skew.Message != "" {
		found = append(found, one("VersionSkew", Warning, skew.Message, "the plugin computes with the code of its own version",
			"make plugin (of the controller's version)")...)
	}
	return found, nil
}

func checkNodePools(ctx context.Context, d *examination) ([]Finding, error) {
	pools := &karpv1.NodePoolList{}
	if err := d.List(ctx, pools); err != nil {
		return nil, err
	}
	var found []Finding
	for i := range pools.Items {
		pool := &pools.Items[i]
		describe := "kubectl describe nodepool " + pool.Name
		if cause := notReady(pool); d.installed() && cause != "" {
			found = append(found, one("NodePoolNotReady", Error, fmt.Sprintf("NodePool %s is not ready: %s", pool.Name, cause), "no node is launched for it",
				describe)...)
		}
		// The number of nodes of a static NodePool does not follow pods, and one with a limit of 0 is paused on purpose.
		if pool.Spec.Replicas != nil || sim.Paused(pool) {
			continue
		}
		if err := sim.LimitReached(pool, flavorsOf(ctx, d, pool)); err != nil {
			found = append(found, one("NodePoolLimit", Warning, fmt.Sprintf("NodePool %s has reached its limits: %s", pool.Name, err), "further pods stay pending",
				"kubectl edit nodepool "+pool.Name)...)
		}
	}
	return found, nil
}

// flavorsOf are what the NodePool may launch; none where that is not known.
func flavorsOf(ctx context.Context, d *examination, pool *karpv1.NodePool) []*corecloudprovider.InstanceType {
	cloud, err := d.Cloud(ctx)
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err != nil || len(pool.Spec.Limits) == 0 ||
		d.Get(ctx, client.ObjectKey{Name: lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name}, nodeClass) != nil {
		return nil
	}
	simulation, err := sim.New(ctx, cloud, memory.Objects{nodeClass, pool})
	if err != nil {
		return nil
	}
	flavors, _ := simulation.FlavorsOf(ctx, pool)
	return flavors
}

func checkRejections(ctx context.Context, d *examination) ([]Finding, error) {
	var all []corev1.Event
	for _, kind := range []string{"NodeClaim", "BizflyNodeClass"} {
		list := &corev1.EventList{}
		if err := d.List(ctx, list, connect.EventsOf(kind)...); err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	at := func(event corev1.Event) time.Time {
		return lo.Ternary(event.LastTimestamp.IsZero(), event.CreationTimestamp.Time, event.LastTimestamp.Time)
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	var quota, other []string
	for _, event := range all {
		if time.Since(at(event)) > recently {
			continue
		}
		switch event.Reason {
		case events.ReasonAccountLimit, events.ReasonQuotaTooSmall:
			quota = append(quota, event.Message)
		case events.ReasonLaunchesPaused:
			if strings.Contains(event.Message, capacity.ReasonQuotaExceeded) {
				quota = append(quota, event.Message)
				continue
			}
			other = append(other, event.Message)
		case events.ReasonLaunchRejected, events.ReasonLaunchFailed, events.ReasonNodeNotRegistered:
			other = append(other, event.Message)
		}
	}
	var found []Finding
	if len(quota) > 0 {
		found = append(found, one("QuotaRejected", Warning,
			fmt.Sprintf("%d launches were rejected by quota or balance within a day; the last one: %s", len(quota), lo.LastOrEmpty(quota)),
			"pods stay pending, or run on flavors that cost more", "raise the project's quota in the BizFly Cloud console, or top up the balance")...)
	}
	if len(other) > 0 {
		found = append(found, one("LaunchesFailed", Warning, fmt.Sprintf("%d launches failed within a day; the last one: %s", len(other), lo.LastOrEmpty(other)),
			"nodes come late, and each attempt is paid for", "kubectl get events --namespace default --field-selector type=Warning")...)
	}
	return found, nil
}
