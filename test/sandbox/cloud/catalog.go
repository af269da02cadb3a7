// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"crypto/sha1" //nolint:gosec // ids that stay as they are, not a protection
	"encoding/json"
	"slices"
)

// The regions by their short names, which key GET /regions and the service catalog.
const (
	RegionHN  = "HN"
	RegionHCM = "HCM"
)

// The billing plans of flavors.
const (
	PlanOnDemand = "on_demand"
	PlanSaving   = "saving_plan"
	// PlanSpot is listed by flavors, and cannot be launched: no request has a field for the bid.
	PlanSpot = "spot_instance"
)

// Catalog is what this cloud offers, by region where regions differ.
type Catalog struct {
	Regions []Region
	// Categories are those of flavors that can be launched, in lower case.
	Categories []string
	Versions   []KubernetesVersion
	// Flavors, VolumeTypes, Images, CustomImages, Snapshots, VPCs and Firewalls are keyed by the region's short name.
	Flavors      map[string][]Flavor
	VolumeTypes  map[string][]VolumeType
	Images       map[string][]OSImage
	CustomImages map[string][]CustomImage
	Snapshots    map[string][]Snapshot
	VPCs         map[string][]VPC
	Firewalls    map[string][]Firewall
	SSHKeys      []SSHKey
}

// Region is one region with its zones.
type Region struct {
	Active     bool   `json:"active"`
	Icon       string `json:"icon"`
	Name       string `json:"name"`
	Order      int    `json:"order"`
	RegionName string `json:"region_name"`
	ShortName  string `json:"short_name"`
	Zones      []Zone `json:"zones"`
}

// Zone is one availability zone; its short name is the one to use everywhere.
type Zone struct {
	Active    bool   `json:"active"`
	Icon      string `json:"icon"`
	Name      string `json:"name"`
	Order     int    `json:"order"`
	ShortName string `json:"short_name"`
}

// Flavor is one size of server. Category, Generation and BillingPlans are always the truth; Omit lists the JSON fields
// that the API does not show for this flavor.
type Flavor struct {
	ID           string      `json:"id"`
	Name         string      `json:"name"`
	RAM          int         `json:"ram"`
	Disk         int         `json:"disk"`
	Swap         string      `json:"swap"`
	VCPUs        int         `json:"vcpus"`
	GenerationID string      `json:"generation_id"`
	Generation   *Generation `json:"generation"`
	Category     string      `json:"category"`
	GPU          *GPU        `json:"gpu"`
	BillingPlans []string    `json:"billing_plans"`
	IsNew        bool        `json:"is_new"`

	// Omit lists JSON fields that GET /flavors leaves out.
	Omit []string `json:"-"`
	// Zones are those that have it; nil is every zone of its generation, or of the region where it has none.
	Zones []string `json:"-"`
}

// MarshalJSON leaves out what Omit names.
func (f Flavor) MarshalJSON() ([]byte, error) {
	type plain Flavor
	raw, err := json.Marshal(plain(f))
	if err != nil || len(f.Omit) == 0 {
		return raw, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	for _, name := range f.Omit {
		delete(fields, name)
	}
	return json.Marshal(fields)
}

// availableIn reports whether the zone of the region has the flavor.
func (f Flavor) availableIn(zone string) bool {
	if f.Zones != nil {
		return slices.Contains(f.Zones, zone)
	}
	return f.listedIn(zone)
}

// listedIn reports whether GET /flavors says so.
func (f Flavor) listedIn(zone string) bool {
	return f.Generation == nil || slices.Contains(f.Generation.AvailabilityZones, zone)
}

// Generation is a generation of hosts.
type Generation struct {
	ID                string   `json:"id"`
	Name              string   `json:"name"`
	Code              string   `json:"code"`
	Category          string   `json:"category"`
	Vendor            string   `json:"vendor"`
	Model             string   `json:"model"`
	Group             string   `json:"group"`
	Description       string   `json:"description"`
	AvailabilityZones []string `json:"availability_zones"`
}

// GPU is what accelerates a flavor.
type GPU struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// VolumeType is a kind of disk.
type VolumeType struct {
	Name              string   `json:"name"`
	Category          string   `json:"category"`
	Type              string   `json:"type"`
	AvailabilityZones []string `json:"availability_zones"`
}

// OSImage is a distribution with its versions.
type OSImage struct {
	OS       string         `json:"os"`
	Versions []ImageVersion `json:"versions"`
}

// ImageVersion is one version of a distribution.
type ImageVersion struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// CustomImage is an image of the project.
type CustomImage struct {
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Description     string          `json:"description"`
	Status          string          `json:"status"`
	DiskFormat      string          `json:"disk_format"`
	ContainerFormat string          `json:"container_format"`
	Visibility      string          `json:"visibility"`
	Size            *int            `json:"size"`
	VirtualSize     *int            `json:"virtual_size"`
	MinRAM          int             `json:"min_ram"`
	MinDisk         int             `json:"min_disk"`
	Protected       bool            `json:"protected"`
	Owner           string          `json:"owner"`
	Checksum        *string         `json:"checksum"`
	CreatedAt       string          `json:"created_at"`
	UpdatedAt       string          `json:"updated_at"`
	Locations       []ImageLocation `json:"locations"`
	Tags            []string        `json:"tags"`
	File            string          `json:"file"`
	Schema          string          `json:"schema"`
}

// ImageLocation is where an image is stored.
type ImageLocation struct {
	URL      string            `json:"url"`
	Metadata map[string]string `json:"metadata"`
}

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	ID           string  `json:"id"`
	Name         string  `json:"name"`
	Status       string  `json:"status"`
	Size         int     `json:"size"`
	VolumeID     string  `json:"volume_id"`
	VolumeTypeID string  `json:"volume_type_id"`
	BillingPlan  string  `json:"billing_plan"`
	Description  *string `json:"description"`
	CreatedAt    string  `json:"created_at"`
	UpdatedAt    string  `json:"updated_at"`
	// Type is the medium of the volume.
	Type             string            `json:"type"`
	Progress         string            `json:"os-extended-snapshot-attributes:progress"`
	ProjectID        string            `json:"os-extended-snapshot-attributes:project_id"`
	Metadata         map[string]string `json:"metadata"`
	IsUsingAutoscale bool              `json:"is_using_autoscale"`
	Category         string            `json:"category"`
	ZoneName         string            `json:"zone_name"`
	RegionName       string            `json:"region_name"`

	// Volume is what it is a snapshot of, while that exists.
	Volume *Volume `json:"volume,omitempty"`
	// Bootable is that of the volume.
	Bootable bool `json:"-"`
}

// KubernetesVersion is a version of the Kubernetes Engine with the image of its workers.
type KubernetesVersion struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	Description        *string  `json:"description"`
	KubernetesVersion  string   `json:"kubernetes_version"`
	WorkerImageID      string   `json:"worker_image_id"`
	LocalDNSSupported  bool     `json:"local_dns_supported"`
	CNIPluginSupported []string `json:"cni_plugin_supported"`
}

// SSHKey is a key pair of the user; servers name it.
type SSHKey struct {
	Name        string `json:"name"`
	PublicKey   string `json:"public_key"`
	Fingerprint string `json:"fingerprint"`
}

// VPC is a private network.
type VPC struct {
	ID                    string   `json:"id"`
	Name                  string   `json:"name"`
	TenantID              string   `json:"tenant_id"`
	AdminStateUp          bool     `json:"admin_state_up"`
	MTU                   int      `json:"mtu"`
	Status                string   `json:"status"`
	Subnets               []Subnet `json:"subnets"`
	Shared                bool     `json:"shared"`
	AvailabilityZoneHints []string `json:"availability_zone_hints"`
	AvailabilityZones     []string `json:"availability_zones"`
	IPv4AddressScope      *string  `json:"ipv4_address_scope"`
	IPv6AddressScope      *string  `json:"ipv6_address_scope"`
	RouterExternal        bool     `json:"router:external"`
	Description           string   `json:"description"`
	PortSecurityEnabled   bool     `json:"port_security_enabled"`
	QosPolicyID           *string  `json:"qos_policy_id"`
	Tags                  []string `json:"tags"`
	CreatedAt             string   `json:"created_at"`
	UpdatedAt             string   `json:"updated_at"`
	RevisionNumber        int      `json:"revision_number"`
	IsDefault             bool     `json:"is_default"`
	// InternetGateway is the id of the gateway by which servers without a public address reach the Internet; null without.
	InternetGateway *string `json:"internet_gateway"`
}

// Subnet is the address range of a private network.
type Subnet struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	TenantID        string   `json:"tenant_id"`
	NetworkID       string   `json:"network_id"`
	IPVersion       int      `json:"ip_version"`
	SubnetPoolID    *string  `json:"subnetpool_id"`
	EnableDHCP      bool     `json:"enable_dhcp"`
	GatewayIP       *string  `json:"gateway_ip"`
	CIDR            string   `json:"cidr"`
	AllocationPools []IPPool `json:"allocation_pools"`
	DNSNameservers  []string `json:"dns_nameservers"`
	HostRoutes      []string `json:"host_routes"`
	ServiceTypes    []string `json:"service_types"`
	Tags            []string `json:"tags"`
	CreatedAt       string   `json:"created_at"`
	ProjectID       string   `json:"project_id"`
}

// IPPool is a range of addresses.
type IPPool struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// Firewall is a security group with its rules.
type Firewall struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	TenantID       string   `json:"tenant_id"`
	Description    string   `json:"description"`
	Tags           []string `json:"tags"`
	CreatedAt      string   `json:"created_at"`
	UpdatedAt      string   `json:"updated_at"`
	RevisionNumber int      `json:"revision_number"`
	ProjectID      string   `json:"project_id"`
	ServersCount   int      `json:"servers_count"`
	Servers        []string `json:"servers"`
	RulesCount     int      `json:"rules_count"`
	// NetworkInterfaceCount counts the ports that have it.
	NetworkInterfaceCount int            `json:"network_interface_count"`
	Inbound               []FirewallRule `json:"inbound"`
	Outbound              []FirewallRule `json:"outbound"`
}

// FirewallRule is one rule of a firewall.
type FirewallRule struct {
	ID              string   `json:"id"`
	SecurityGroupID string   `json:"security_group_id"`
	EtherType       string   `json:"ethertype"`
	Direction       string   `json:"direction"`
	Protocol        *string  `json:"protocol"`
	PortRangeMin    *int     `json:"port_range_min"`
	PortRangeMax    *int     `json:"port_range_max"`
	RemoteIPPrefix  *string  `json:"remote_ip_prefix"`
	RemoteGroupID   *string  `json:"remote_group_id"`
	Description     string   `json:"description"`
	Type            string   `json:"type,omitempty"`
	CIDR            string   `json:"cidr,omitempty"`
	PortRange       *string  `json:"port_range"`
	Tags            []string `json:"tags"`
	CreatedAt       string   `json:"created_at"`
}

// StableID is the same id for the same thing in every run, so that tests and examples can name it.
func StableID(parts ...string) string {
	name := ""
	for _, part := range parts {
		name += "/" + part
	}
	// Version 5 of RFC 9562, in the namespace of URLs.
	namespace := []byte{0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}
	sum := sha1.Sum(append(namespace, "sandbox.bizflycloud.vn"+name...)) //nolint:gosec // see above
	return uuid([16]byte(sum[:16]), 5)
}
