// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// diskRequest is a disk in a create request. Type (HDD or SSD) is the deprecated form of VolumeType.
type diskRequest struct {
	Size       int    `json:"size"`
	VolumeType string `json:"volume_type"`
	Type       string `json:"type"`
}

type osRequest struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// createRequest is one element of the array that POST /servers takes, and all that it takes.
type createRequest struct {
	Name              string            `json:"name"`
	Flavor            string            `json:"flavor"`
	SSHKey            string            `json:"sshkey"`
	RootDisk          *diskRequest      `json:"rootdisk"`
	DataDisks         []*diskRequest    `json:"datadisks"`
	Type              string            `json:"type"`
	AvailabilityZone  string            `json:"availability_zone"`
	OS                *osRequest        `json:"os"`
	Quantity          *int              `json:"quantity"`
	NetworkInterfaces []string          `json:"network_interfaces"`
	Firewalls         []string          `json:"firewalls"`
	NetworkPlan       string            `json:"network_plan"`
	VPCNetworkIDs     []string          `json:"vpc_network_ids"`
	BillingPlan       string            `json:"billing_plan"`
	IPv6              bool              `json:"ipv6"`
	IsCreatedWan      *bool             `json:"is_created_wan"`
	UserData          string            `json:"user_data"`
	Metadata          map[string]string `json:"metadata"`
	// Password asks that one is mailed to the account's owner; nothing of it is in the API.
	Password any `json:"password"`
}

// validRequest is a create request that was found valid, with the objects that it names.
type validRequest struct {
	createRequest
	project, region string
	flavor          Flavor
	quantity        int
	os              resolvedOS
	rootVolume      VolumeType
	dataVolumes     []VolumeType
	vpcs            []VPC
	firewallIDs     []string
	wan             bool
}

var (
	networkPlans = []string{"free_datatransfer", "free_bandwidth"}
	metadataKey  = regexp.MustCompile(`^[a-zA-Z0-9_:. -]{1,255}$`)
)

const (
	maxMetadata     = 128
	maxUserData     = 65535 // of base64, as the compute service limits it
	defaultFirewall = "default"
)

var _ = serverAPI.serve(on(http.MethodPost, "/servers", (*Cloud).createServers))

func (c *Cloud) createServers(q *call) reply {
	if c.quota.blocked() {
		return reply{status: http.StatusForbidden, body: apiMessage{}}
	}
	o, rejection := c.validate(q)
	switch {
	case rejection != nil && c.opts.Shape.LateRejections:
		return c.rejectLate(q, rejection)
	case rejection != nil:
		return *rejection
	}
	admitted := c.admit(q, o)
	if admitted.rejection != nil {
		return *admitted.rejection
	}
	name := o.Name
	switch {
	case c.opts.ChangeNames:
		name = "vm-" + c.newHex(4)
	case c.opts.AppendNameCode:
		name += "-tN4" + c.newHex(4)[3:]
	}
	ids := []string{c.build(o, name, admitted.doom, q.fx).ID}
	if q.fx.has(EffectEmptyTask) {
		ids = []string{}
	}
	return ok(map[string]any{"task_id": ids})
}

// rejectLate accepts a request that is wrong and lets its task fail.
func (c *Cloud) rejectLate(q *call, rejection *reply) reply {
	t := c.newTask("create_server", q.project, q.region, "", q.fx)
	said, _ := rejection.body.(apiMessage)
	c.after(t.EndsAt.Sub(c.now), func() { c.end(t, false, said.Message, nil) })
	return ok(map[string]any{"task_id": []string{t.ID}})
}

// validator is one check of a create request; it returns the rejection, or nil.
type validator func(*Cloud, *call, *validRequest) *reply

var validators = []validator{
	(*Cloud).checkNames, (*Cloud).checkZone, (*Cloud).checkFlavor, (*Cloud).checkPlans, (*Cloud).checkOS, (*Cloud).checkDisks,
	(*Cloud).checkNetwork, (*Cloud).checkFirewalls, (*Cloud).checkMetadata,
}

func (c *Cloud) validate(q *call) (*validRequest, *reply) {
	requests, rejection := decode[[]createRequest](q)
	if rejection != nil {
		return nil, rejection
	}
	if len(requests) != 1 {
		return nil, bad("expected an array of one server, got %d", len(requests))
	}
	o := &validRequest{createRequest: requests[0], project: q.project, region: q.region}
	return c.validated(q, o)
}

// validated returns a create request that passes all checks.
func (c *Cloud) validated(q *call, o *validRequest) (*validRequest, *reply) {
	for _, check := range validators {
		if rejection := check(c, q, o); rejection != nil {
			return nil, rejection
		}
	}
	return o, nil
}

func bad(format string, args ...any) *reply {
	rejection := reject(http.StatusBadRequest, fmt.Sprintf(format, args...))
	return &rejection
}

// silent is a rejection that does not name what is wrong.
func silent() *reply { return bad("Dữ liệu không hợp lệ") }

func (c *Cloud) checkNames(_ *call, o *validRequest) *reply {
	switch {
	case o.Name == "" || len(o.Name) > 255:
		return bad("Tên máy chủ không hợp lệ")
	case o.Flavor == "":
		return bad("flavor is required")
	case o.Type == "":
		return bad("type is required")
	case o.AvailabilityZone == "":
		return bad("availability_zone is required")
	case o.OS == nil || o.OS.ID == "" || o.OS.Type == "":
		return bad("os is required")
	}
	o.quantity = 1
	if o.Quantity != nil && *o.Quantity != 1 {
		return bad("quantity must be 1")
	}
	if o.SSHKey != "" && !slices.ContainsFunc(c.opts.Catalog.SSHKeys, func(k SSHKey) bool { return k.Name == o.SSHKey }) {
		return bad("Invalid key_name provided: %s", o.SSHKey)
	}
	return nil
}

func (c *Cloud) checkZone(q *call, o *validRequest) *reply {
	for _, zone := range c.region(q.region).Zones {
		if zone.ShortName == o.AvailabilityZone && zone.Active {
			return nil
		}
	}
	return bad("The requested availability zone is not available: %s", o.AvailabilityZone)
}

// shortName is the name without the old prefix and suffixes, as it may be used in a create.
func shortName(name string) string {
	name = strings.TrimPrefix(name, "nix.")
	for _, suffix := range []string{"_basic", "_enterprise", "_dedicated", "_vps"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// orderedFlavor finds the flavor of a create request, which must name it in the one form that this cloud takes.
func (c *Cloud) orderedFlavor(region, name, category string) (Flavor, bool) {
	flavor, found := c.flavor(region, name, category)
	form := c.opts.Shape.Flavors
	inForm := form == FlavorsByAnyName || form == FlavorsByFullName && flavor.Name == name || form == FlavorsByShortName && shortName(flavor.Name) == name
	return flavor, found && inForm
}

// flavor finds a flavor by its name, or by its short name within a category.
func (c *Cloud) flavor(region, name, category string) (Flavor, bool) {
	flavors := c.opts.Catalog.Flavors[region]
	if i := slices.IndexFunc(flavors, func(f Flavor) bool { return f.Name == name }); i >= 0 {
		return flavors[i], true
	}
	i := slices.IndexFunc(flavors, func(f Flavor) bool {
		return shortName(f.Name) == name && f.Category == category && !strings.HasSuffix(f.Name, "_vps")
	})
	if i < 0 {
		return Flavor{}, false
	}
	return flavors[i], true
}

func (c *Cloud) checkFlavor(q *call, o *validRequest) *reply {
	if !slices.Contains(c.opts.Catalog.Categories, o.Type) {
		return bad("type không hợp lệ: %s", o.Type)
	}
	flavor, found := c.orderedFlavor(q.region, o.Flavor, o.Type)
	switch {
	case !found && c.opts.Shape.SilentFlavors:
		return silent()
	case !found && c.opts.Vietnamese:
		return bad("Không tìm thấy cấu hình %s", o.Flavor)
	case !found:
		return bad("Flavor %s could not be found.", o.Flavor)
	case flavor.Generation == nil && c.opts.Shape.OldFlavorsClosed:
		return bad("Gói %s đã ngừng cung cấp", o.Flavor)
	case flavor.Category != o.Type:
		return bad("Flavor %s does not belong to type %s", o.Flavor, o.Type)
	case !flavor.availableIn(o.AvailabilityZone):
		return bad("Flavor %s không được hỗ trợ tại %s", o.Flavor, o.AvailabilityZone)
	}
	o.flavor = flavor
	return nil
}

func (c *Cloud) checkPlans(_ *call, o *validRequest) *reply {
	o.BillingPlan = orDefault(o.BillingPlan, PlanSaving)
	o.NetworkPlan = orDefault(o.NetworkPlan, networkPlans[0])
	switch {
	case o.BillingPlan == PlanSpot:
		return bad("A spot instance needs a bid, which this request cannot carry")
	case o.BillingPlan != PlanOnDemand && o.BillingPlan != PlanSaving:
		return bad("billing_plan không hợp lệ: %s", o.BillingPlan)
	case !slices.Contains(o.flavor.BillingPlans, o.BillingPlan):
		return bad("Flavor %s does not support billing plan %s", o.Flavor, o.BillingPlan)
	case !slices.Contains(networkPlans, o.NetworkPlan):
		return bad("network_plan không hợp lệ: %s", o.NetworkPlan)
	}
	return nil
}

func (c *Cloud) checkMetadata(_ *call, o *validRequest) *reply {
	if len(o.Metadata) > maxMetadata {
		return bad("Maximum number of metadata items exceeds %d", maxMetadata)
	}
	for key, value := range o.Metadata {
		if !metadataKey.MatchString(key) {
			return bad("Invalid metadata key: %q", key)
		}
		if len(value) > 255 {
			return bad("Invalid metadata: the value of %q is longer than 255 characters", key)
		}
	}
	if base64.StdEncoding.EncodedLen(len(o.UserData)) > maxUserData {
		return bad("User data too large: %d bytes", len(o.UserData))
	}
	return nil
}
