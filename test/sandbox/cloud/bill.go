// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// What the account pays, by the formula of docs.bizflycloud.vn/billing/plan/plan. With M1 the monthly price of CPU and memory
// and M2 that of the disk, both as a subscription, an on-demand server costs
//
//	M1/720 x hours on x 1.5 + M1/720 x hours off x 0.3 + M2/720 x hours x 1.3
//
// and a subscription M1/720 + M2/720 for each hour that it exists, since what remains of it is refunded. The page counts hours;
// the bill counts seconds, because nobody knows how a started hour is rounded.
const (
	hoursOfMonth  = 720
	factorRunning = 1.5
	factorStopped = 0.3
	factorDisk    = 1.3
	// maxBilled bounds the closed lines of a sandbox that runs for long. The oldest are summed up in Bill.Earlier.
	maxBilled = 50_000
)

// The states of what is billed.
const (
	BilledRunning = "running"
	BilledStopped = "stopped"
	BilledDisk    = "disk"
)

// Prices are monthly prices of a subscription in VND, without VAT. The sandbox has its own, so that a bill judges the price table
// of who is tested and does not repeat it.
type Prices struct {
	// Compute are the prices by category; "" is that of a category that is not named.
	Compute map[string]ComputePrice `json:"compute"`
	// GPU is the price of one GPU by a part of its name; "" is that of all others.
	GPU map[string]float64 `json:"gpu"`
	// DiskGiB is the price of a GiB by medium, SSD or HDD.
	DiskGiB map[string]float64 `json:"disk_gib"`
}

// ComputePrice is the monthly price of a vCPU and of a GiB of memory in VND.
type ComputePrice struct {
	VCPU float64 `json:"vcpu"`
	GiB  float64 `json:"gib"`
}

// DefaultPrices fit the one price that is published: 6 vCPU and 24 GB cost 5,775 VND per hour on demand
// (docs.bizflycloud.vn/cloud_server/resources/spot_instance), with memory at a third of a vCPU. A GB of storage costs 2.5 VND per
// hour (bizflycloud.vn/container-registry/pricing). Only the order of the other categories is known.
func DefaultPrices() Prices {
	const vcpu, hdd = 5775.0 / (6 + 24.0/3) / factorRunning * hoursOfMonth, 2.5 / factorDisk * hoursOfMonth
	return Prices{
		Compute: map[string]ComputePrice{
			"basic": {0.75 * vcpu, 0.25 * vcpu}, "premium": {vcpu, vcpu / 3}, "enterprise": {1.25 * vcpu, 1.25 * vcpu / 3},
			"dedicated": {2 * vcpu, 1.25 * vcpu / 3}, "": {2 * vcpu, 1.25 * vcpu / 3},
		},
		// No price of a GPU is public. That of the A30, 18,000 per hour on demand, is what the controller assumes: a demo compares
		// what the controller adds up with the bill.
		GPU:     map[string]float64{"": 30_000_000, "A30": 18_000 / factorRunning * hoursOfMonth},
		DiskGiB: map[string]float64{"HDD": hdd, "SSD": 2 * hdd},
	}
}

// billed is what decides the price of a server or volume at one moment.
type billed struct {
	State    string `json:"state"`
	Plan     string `json:"plan"`
	Category string `json:"category,omitempty"`
	Flavor   string `json:"flavor,omitempty"`
	VCPUs    int    `json:"vcpus,omitempty"`
	// RAMMiB is the memory as advertised.
	RAMMiB  int    `json:"ram_mib,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	GPUs    int    `json:"gpus,omitempty"`
	Medium  string `json:"medium,omitempty"`
	SizeGiB int    `json:"size_gib,omitempty"`
}

// BillLine is the time in which nothing changed that decides the price of a server or volume.
type BillLine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	billed
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Open       bool      `json:"open"`
	VNDPerHour float64   `json:"vnd_per_hour"`
	VND        float64   `json:"vnd"`
}

// Bill is what the project pays: by line, since the sandbox began.
type Bill struct {
	At time.Time `json:"at"`
	// VND is the sum of everything, Earlier that of lines which are no longer kept.
	VND     float64 `json:"vnd"`
	Earlier float64 `json:"earlier_vnd"`
	// VNDPerHour is what exists now.
	VNDPerHour float64 `json:"vnd_per_hour"`
	// Hours sums the hours of servers by state.
	Hours map[string]float64 `json:"hours"`
	Lines []BillLine         `json:"lines"`
}

// meter keeps the bill of the project of the sandbox; what other projects have is not in it.
type meter struct {
	open    map[string]BillLine
	closed  []BillLine
	earlier float64
}

// Bill computes the bill up to now.
func (c *Cloud) Bill() Bill {
	var bill Bill
	c.with(func() {
		c.checkMeter()
		bill = Bill{At: c.now, VND: c.meter.earlier, Earlier: c.meter.earlier, Hours: map[string]float64{}, Lines: slices.Clone(c.meter.closed)}
		for _, line := range c.meter.open {
			line.To, line.VND, line.Open = c.now, line.VNDPerHour*c.now.Sub(line.From).Hours(), true
			bill.VNDPerHour += line.VNDPerHour
			bill.Lines = append(bill.Lines, line)
		}
	})
	slices.SortFunc(bill.Lines, func(a, b BillLine) int {
		if order := a.From.Compare(b.From); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	for i := range bill.Lines {
		bill.VND += bill.Lines[i].VND
		if bill.Lines[i].State != BilledDisk {
			bill.Hours[bill.Lines[i].State] += bill.Lines[i].To.Sub(bill.Lines[i].From).Hours()
		}
	}
	return bill
}

// checkMeter finds a change that nobody told the meter; that is a defect of the sandbox.
func (c *Cloud) checkMeter() {
	found := 0
	check := func(project, id string, is billed) {
		if project != c.opts.Project {
			return
		}
		found++
		if line, open := c.meter.open[id]; !open || line.billed != is {
			panic(fmt.Sprintf("the meter has %+v for %s, which is %+v", line.billed, id, is))
		}
	}
	for id, s := range c.servers {
		check(s.truth.Project, id, s.billed())
	}
	for id, v := range c.volumes {
		check(v.project, id, v.billed())
	}
	if found != len(c.meter.open) {
		panic(fmt.Sprintf("the meter has %d things, the cloud %d", len(c.meter.open), found))
	}
}

// billed takes a server for running unless it is stopped: also while it is built and when it is broken, because a bill is never
// kinder than the cloud may be.
func (s *server) billed() billed {
	b := billed{
		State: BilledRunning, Plan: s.wire.BillingPlan, Category: s.wire.Category, Flavor: s.wire.Flavor.Name,
		VCPUs: s.wire.Flavor.VCPUs, RAMMiB: s.wire.Flavor.RAM,
	}
	if s.wire.Status == StatusShutoff {
		b.State = BilledStopped
	}
	if gpu := s.truth.Flavor.GPU; gpu != nil {
		b.GPU, b.GPUs = gpu.Name, gpu.Count
	}
	return b
}

func (v *volume) billed() billed {
	return billed{State: BilledDisk, Plan: v.wire.BillingPlan, Medium: v.wire.Type, SizeGiB: v.wire.Size}
}

// chargeServer tells the meter what a server is now; the caller holds the lock.
func (c *Cloud) chargeServer(s *server) {
	if c.servers[s.wire.ID] == s && s.truth.Project == c.opts.Project {
		c.charge(s.wire.ID, s.wire.Name, s.billed())
	}
}

// chargeVolume tells the meter what a volume is now; the caller holds the lock.
func (c *Cloud) chargeVolume(v *volume) {
	if v.project == c.opts.Project {
		c.charge(v.wire.ID, v.wire.Name, v.billed())
	}
}

func (c *Cloud) charge(id, name string, is billed) {
	if line, open := c.meter.open[id]; open && line.billed == is {
		return
	}
	c.discharge(id)
	c.meter.open[id] = BillLine{ID: id, Name: name, billed: is, From: c.now, VNDPerHour: c.opts.Prices.perHour(is)}
}

// discharge ends the line of something that changes or is gone.
func (c *Cloud) discharge(id string) {
	line, open := c.meter.open[id]
	if !open {
		return
	}
	delete(c.meter.open, id)
	if !c.now.After(line.From) {
		return
	}
	line.To, line.VND = c.now, line.VNDPerHour*c.now.Sub(line.From).Hours()
	c.meter.closed = append(c.meter.closed, line)
	if n := len(c.meter.closed) - maxBilled; n > 0 {
		for _, old := range c.meter.closed[:n] {
			c.meter.earlier += old.VND
		}
		c.meter.closed = c.meter.closed[n:]
	}
}

// dropVolume removes a volume.
func (c *Cloud) dropVolume(id string) {
	delete(c.volumes, id)
	c.discharge(id)
}

// perHour is the price in VND per hour.
func (p Prices) perHour(is billed) float64 {
	if is.State == BilledDisk {
		price := p.DiskGiB[is.Medium] * float64(is.SizeGiB) / hoursOfMonth
		if is.Plan == PlanSaving {
			return price
		}
		return price * factorDisk
	}
	rate, known := p.Compute[is.Category]
	if !known {
		rate = p.Compute[""]
	}
	month := rate.VCPU*float64(is.VCPUs) + rate.GiB*float64(is.RAMMiB)/1024 + p.gpu(is.GPU)*float64(is.GPUs)
	switch {
	case is.Plan == PlanSaving:
		return month / hoursOfMonth
	case is.State == BilledStopped:
		return month / hoursOfMonth * factorStopped
	}
	return month / hoursOfMonth * factorRunning
}

// gpu is the monthly price of one GPU: that of the longest name which is a part of its name.
func (p Prices) gpu(name string) float64 {
	best := ""
	for part := range p.GPU {
		if len(part) > len(best) && strings.Contains(strings.ToLower(name), strings.ToLower(part)) {
			best = part
		}
	}
	return p.GPU[best]
}
