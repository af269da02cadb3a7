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

// Package pricing knows what an offering costs in VND per hour. BizFly has no price API, so the prices come from an
// embedded table whose sources are in docs/pricing.md; what matters for consolidation is that they are comparable.
package pricing

import (
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Item is what is priced.
type Item struct {
	// Category is basic, premium, enterprise or dedicated.
	Category string
	// Generation is the generation's code, for example "2" or "4a"; empty for flavors without one.
	Generation string
	// CPU is the number of vCPUs.
	CPU int
	// MemoryMiB is the memory in MiB.
	MemoryMiB int
	// GPUName and GPUCount are the GPUs; 0 without.
	GPUName  string
	GPUCount int
	// DiskGiB is the size of the root disk in GiB.
	DiskGiB int
	// DiskType is the medium of the root disk.
	DiskType v1alpha1.DiskMedium
	// DataDisks are the other disks of the server.
	DataDisks []Disk
	// BillingPlan is how it is paid for.
	BillingPlan v1alpha1.BillingPlan
	// NetworkPlan is how traffic is charged.
	NetworkPlan v1alpha1.NetworkPlan
}

// Disk is a disk of a server.
type Disk struct {
	// GiB is its size in GiB.
	GiB int
	// Type is its medium.
	Type v1alpha1.DiskMedium
}

// Source says where a number of the price table comes from.
type Source string

// The sources of numbers.
const (
	// SourceConfigured is a number that the user gave, for example from an invoice.
	SourceConfigured Source = "configured"
	// SourcePublished is a number that BizFly Cloud publishes.
	SourcePublished Source = "published"
	// SourceDerived is a number computed from published ones.
	SourceDerived Source = "derived"
	// SourceAssumed is a number that this project chose.
	SourceAssumed Source = "assumed"
)

// Sources are all sources, the most certain first.
var Sources = []Source{SourceConfigured, SourcePublished, SourceDerived, SourceAssumed}

// Provider prices items.
type Provider interface {
	// Price returns VND per hour, always above 0 and strictly growing with CPU, memory, GPUs and disk; false when the
	// table knows no price for the item.
	Price(item Item) (vndPerHour float64, ok bool)
	// Source returns the least certain source of the numbers that the price of the item is made of.
	Source(item Item) Source
	// SeqNum changes whenever a price may have changed.
	SeqNum() uint64
}

// DefaultProvider prices with the active table.
type DefaultProvider struct{ table func() *Table }

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider prices with the table that the function returns, for example DefaultTable. It must have passed
// ParseTable and not be changed any more.
func NewDefaultProvider(table func() *Table) *DefaultProvider { return &DefaultProvider{table: table} }

// Price returns VND per hour.
func (p *DefaultProvider) Price(item Item) (float64, bool) { return p.table().price(item) }

// Source returns the least certain source of the item's price.
func (p *DefaultProvider) Source(item Item) Source { return p.table().sourceOf(item) }

// SeqNum is different for each parsed table.
func (p *DefaultProvider) SeqNum() uint64 { return p.table().seq }
