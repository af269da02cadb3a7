// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"strings"
)

// anything matches every flavor, zone or plan in a stock rule.
const anything = "*"

type stockKey struct{ flavor, zone, plan string }

// stockRule is how many more servers of a kind can be built; a wildcard makes it a pool that several kinds share.
type stockRule struct {
	stockKey
	available int // -1 is unlimited
}

func (r *stockRule) specificity() int {
	n := 0
	for _, part := range []string{r.flavor, r.zone, r.plan} {
		if part != anything {
			n++
		}
	}
	return n
}

// SetStock reports how many more servers of the flavor can be built in the zone with the billing plan; -1 is unlimited,
// "*" (or "") matches anything and makes a pool. The most specific rule counts, and what was set last among equals. A
// server that is deleted gives back what it took.
func (c *Cloud) SetStock(flavor, zone, plan string, available int) {
	key := stockKey{orDefault(flavor, anything), orDefault(zone, anything), orDefault(plan, anything)}
	c.with(func() {
		for _, r := range c.stock {
			if r.stockKey == key {
				r.available = available
				return
			}
		}
		c.stock = append(c.stock, &stockRule{key, available})
	})
}

// SetQuota limits what a project may hold; fields that are nil are unlimited.
func (c *Cloud) SetQuota(quota Quota) {
	c.with(func() { c.quota = quota })
}

func (c *Cloud) stockFor(flavor, zone, plan string) *stockRule {
	var best *stockRule
	for _, r := range c.stock {
		matches := (r.flavor == anything || r.flavor == flavor) && (r.zone == anything || r.zone == zone) && (r.plan == anything || r.plan == plan)
		if matches && (best == nil || r.specificity() >= best.specificity()) {
			best = r
		}
	}
	return best
}

func (c *Cloud) takeStock(s *server, o *validRequest) {
	r := c.stockFor(o.flavor.Name, o.AvailabilityZone, o.BillingPlan)
	if r != nil && r.available > 0 {
		r.available--
		s.stock = append(s.stock, r.stockKey)
	}
}

func (c *Cloud) giveBack(s *server) {
	for _, key := range s.stock {
		for _, r := range c.stock {
			if r.stockKey == key && r.available >= 0 {
				r.available++
			}
		}
	}
	s.stock = nil
}

// admission is what admission decides about a create request: rejected, bound to fail, or neither.
type admission struct {
	rejection *reply
	doom      string
}

// admit reports whether account, zone and faults allow the request.
func (c *Cloud) admit(q *call, o *validRequest) admission {
	status, message := http.StatusOK, ""
	n := o.quantity
	wants := need{instances: n, vcpus: n * o.flavor.VCPUs, ram: n * o.flavor.RAM, volumes: n * (1 + len(o.DataDisks)), gb: n * o.RootDisk.Size}
	for _, disk := range o.DataDisks {
		wants.gb += n * disk.Size
	}
	if o.wan {
		wants.wanIPs = n
	}
	async := c.opts.AsyncRejections
	if f := q.fx.capacity(); f != nil {
		status, message = f.rejection(c.opts.Vietnamese)
		async = async || f.Async
	} else if exceeded := c.quotaExceeded(o.project, wants); exceeded != "" {
		status, message = http.StatusForbidden, exceeded
	} else if exhausted := c.exhausted(o); exhausted != "" {
		status, message = http.StatusConflict, exhausted
	} else if r := c.stockFor(o.flavor.Name, o.AvailabilityZone, o.BillingPlan); r != nil && r.available >= 0 && r.available < n {
		status, message = http.StatusConflict, noRoom(c.opts.Vietnamese)
	}
	if status != http.StatusOK {
		c.rejected[stockKey{o.flavor.Name, o.AvailabilityZone, o.BillingPlan}]++
	}
	switch {
	case status == http.StatusOK:
		return admission{}
	case async:
		return admission{doom: message}
	}
	rejection := reject(status, message)
	return admission{rejection: &rejection}
}

func noRoom(vietnamese bool) string {
	if vietnamese {
		return "Không đủ tài nguyên để khởi tạo máy chủ, vui lòng thử lại sau"
	}
	return "No valid host was found. There are not enough hosts available."
}

func (c *Cloud) exhausted(o *validRequest) string {
	for _, vpc := range o.vpcs {
		if c.freeAddresses(vpc) >= o.quantity {
			continue
		}
		if c.opts.Vietnamese {
			return "Không đủ địa chỉ IP trong mạng " + vpc.ID
		}
		return "No more IP addresses available on network " + vpc.ID + "."
	}
	return ""
}

// need is what something would add to what a project holds.
type need struct{ instances, vcpus, ram, volumes, gb, wanIPs int }

// holdings is what a project holds over all regions. Servers in ERROR count, as they do with the real one.
func (c *Cloud) holdings(project string) need {
	var held need
	for _, s := range c.servers {
		if s.truth.Project == project {
			held.instances++
			held.vcpus += s.wire.Flavor.VCPUs
			held.ram += s.wire.Flavor.RAM
		}
	}
	for _, v := range c.volumes {
		if v.project == project {
			held.volumes++
			held.gb += v.wire.Size
		}
	}
	for _, p := range c.ports {
		if p.wan && !p.v6 && p.project == project {
			held.wanIPs++
		}
	}
	return held
}

// quotaExceeded returns the message of the compute service when the quota does not suffice, or "".
func (c *Cloud) quotaExceeded(project string, wants need) string {
	if c.quota == (Quota{}) {
		return ""
	}
	held := c.holdings(project)
	var names, requested, used, limits []string
	for _, check := range []struct {
		name         string
		limit        *int
		wanted, held int
	}{
		{"cores", c.quota.VCPUs, wants.vcpus, held.vcpus},
		{"instances", c.quota.Instances, wants.instances, held.instances},
		{"ram", c.quota.RAM, wants.ram, held.ram},
		{"volumes", c.quota.Volumes, wants.volumes, held.volumes},
		{"gigabytes", c.quota.Gigabytes, wants.gb, held.gb},
		{"floating_ips", c.quota.WanIPs, wants.wanIPs, held.wanIPs},
	} {
		if check.limit == nil || check.wanted == 0 || check.held+check.wanted <= *check.limit {
			continue
		}
		names = append(names, check.name)
		requested = append(requested, fmt.Sprint(check.wanted))
		used = append(used, fmt.Sprint(check.held))
		limits = append(limits, fmt.Sprint(*check.limit))
	}
	if len(names) == 0 {
		return ""
	}
	what := strings.Join(names, ", ")
	if c.opts.Vietnamese {
		return fmt.Sprintf("Vượt quá hạn mức cho phép của tài khoản: %s (hạn mức %s)", what, strings.Join(limits, ", "))
	}
	return fmt.Sprintf("Quota exceeded for %s: Requested %s, but already used %s of %s %s",
		what, strings.Join(requested, ", "), strings.Join(used, ", "), strings.Join(limits, ", "), what)
}
