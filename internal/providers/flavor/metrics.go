// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// scrapeTimeout bounds what a scrape waits for the cache, well below the 10 s after which Prometheus gives up.
const scrapeTimeout = time.Second

// observed is the provider whose offerings are reported: a process has one, tests the one created last.
var observed atomic.Pointer[DefaultProvider]

// The metrics that providers of Karpenter share have the names and labels of the AWS provider's. The NodeClass is one
// label more where it decides about the value: prices are those of its disks and its billing plan.
var (
	priceDesc = prometheus.NewDesc(
		"karpenter_cloudprovider_instance_type_offering_price_estimate",
		"Estimated price of one server of the instance type in the zone, with the disks and the billing plan of the "+
			"NodeClass, in VND per hour.",
		[]string{"nodeclass", "instance_type", "zone", "capacity_type"}, nil,
	)
	availableDesc = prometheus.NewDesc(
		"karpenter_cloudprovider_instance_type_offering_available",
		"1 while the instance type can be launched in the zone according to the catalog, the NodeClass and recent launches, "+
			"else 0.",
		[]string{"nodeclass", "instance_type", "zone", "capacity_type"}, nil,
	)
	cpuDesc = prometheus.NewDesc(
		"karpenter_cloudprovider_instance_type_cpu_cores",
		"vCPUs of the instance type.",
		[]string{"instance_type"}, nil,
	)
	memoryDesc = prometheus.NewDesc(
		"karpenter_cloudprovider_instance_type_memory_bytes",
		"Memory of the instance type as its flavor states it, in bytes; its nodes see a few percent less.",
		[]string{"instance_type"}, nil,
	)
	typesDesc = prometheus.NewDesc(
		"karpenter_bizfly_instance_types",
		"Instance types that the NodeClass can use, available or not, and those that its nodes run on. By nodeclass.",
		[]string{"nodeclass"}, nil,
	)
	unpricedDesc = prometheus.NewDesc(
		"karpenter_bizfly_unpriced_nodeclaims",
		"Launched NodeClaims whose price is not known, which the cost of their NodePool leaves out.",
		nil, nil,
	)
)

func init() { crmetrics.Registry.MustRegister(offeringCollector{}) }

// offeringCollector reads the answers and the NodeClasses that are there when it is asked, so that nothing outlives its
// offering, and no alert the NodeClass that it is about.
type offeringCollector struct{}

// Describe implements prometheus.Collector.
func (offeringCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{priceDesc, availableDesc, cpuDesc, memoryDesc, typesDesc, unpricedDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (offeringCollector) Collect(metrics chan<- prometheus.Metric) {
	p := observed.Load()
	if p == nil {
		return
	}
	entries, sized := *p.entries.Load(), sets.New[string]()
	if len(entries) == 0 {
		return
	}
	// A cache that has not started, or whose kind the API server does not serve, makes its readers wait; a scrape must
	// not.
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	if err := p.reader.List(ctx, nodeClasses, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	claims := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err == nil {
		metrics <- prometheus.MustNewConstMetric(unpricedDesc, prometheus.GaugeValue,
			float64(lo.CountBy(claims.Items, func(claim karpv1.NodeClaim) bool {
				return claim.Status.ProviderID != "" && p.unpriced(&claim)
			})))
	}
	for i := range nodeClasses.Items {
		nodeClass := nodeClasses.Items[i].Name
		e, known := entries[nodeClass]
		if !known {
			continue
		}
		metrics <- prometheus.MustNewConstMetric(typesDesc, prometheus.GaugeValue, float64(len(e.types)), nodeClass)
		for _, it := range e.types {
			for _, offering := range it.Offerings {
				labels := []string{nodeClass, it.Name, offering.Zone(), offering.CapacityType()}
				metrics <- prometheus.MustNewConstMetric(availableDesc, prometheus.GaugeValue,
					lo.Ternary(offering.Available, 1.0, 0), labels...)
				metrics <- prometheus.MustNewConstMetric(priceDesc, prometheus.GaugeValue, offering.Price, labels...)
			}
			if sized.Has(it.Name) {
				continue
			}
			sized.Insert(it.Name)
			metrics <- prometheus.MustNewConstMetric(cpuDesc, prometheus.GaugeValue,
				it.Capacity.Cpu().AsApproximateFloat64(), it.Name)
			memoryMiB, _ := strconv.ParseFloat(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Any(), 64)
			metrics <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, memoryMiB*mib, it.Name)
		}
	}
}

// unpriced reports whether the price of what a NodeClaim of this provider runs on is not known. Nothing is known before
// the instance types of its NodeClass were asked for.
func (p *DefaultProvider) unpriced(claim *karpv1.NodeClaim) bool {
	e, known := (*p.entries.Load())[lo.FromPtr(claim.Spec.NodeClassRef).Name]
	if !v1alpha1.IsOurs(claim.Spec.NodeClassRef) || !known {
		return false
	}
	_, offering := Find(e.types, claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone])
	return offering == nil || offering.Price <= 0
}
