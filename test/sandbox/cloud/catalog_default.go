// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

const catalogTime = "2024-05-06T07:08:09Z"

// DefaultCatalog is the default catalog of the sandbox: zones HN1, HN2 and HCM1, four categories, two
// generations, the old names beside the new ones, two flavors with GPUs. More zones are added to the region HN.
func DefaultCatalog(moreZones ...string) *Catalog {
	c := &Catalog{
		Regions: []Region{
			{Active: true, Icon: "/images/hn.svg", Name: "Hà Nội", Order: 1, RegionName: "HaNoi", ShortName: RegionHN, Zones: []Zone{
				{Active: true, Icon: "/images/hn.svg", Name: "Hà Nội 1", Order: 1, ShortName: "HN1"},
				{Active: true, Icon: "/images/hn.svg", Name: "Hà Nội 2", Order: 2, ShortName: "HN2"},
			}},
			{Active: true, Icon: "/images/hcm.svg", Name: "Hồ Chí Minh", Order: 2, RegionName: "HoChiMinh", ShortName: RegionHCM, Zones: []Zone{
				{Active: true, Icon: "/images/hcm.svg", Name: "Hồ Chí Minh 1", Order: 1, ShortName: "HCM1"},
			}},
		},
		Flavors: map[string][]Flavor{}, VolumeTypes: map[string][]VolumeType{}, Images: map[string][]OSImage{},
		CustomImages: map[string][]CustomImage{}, Snapshots: map[string][]Snapshot{}, VPCs: map[string][]VPC{}, Firewalls: map[string][]Firewall{},
		Versions: Versions(DefaultMinor),
		SSHKeys: []SSHKey{
			{Name: "ops", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsO ops",
				Fingerprint: "92:2f:6a:08:69:d1:91:e7:e4:72:d1:4d:e9:d9:0e:ba"},
			{Name: "karpenter", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKarpenterKarpenterKarpenterKarpenterKarpent karpenter",
				Fingerprint: "aa:e9:3f:49:dd:3b:21:f2:3a:3a:97:de:40:8c:c0:41"},
		},
	}
	hn := &c.Regions[0]
	for _, zone := range moreZones {
		hn.Zones = append(hn.Zones, Zone{Active: true, Icon: hn.Icon, Name: zone, Order: len(hn.Zones) + 1, ShortName: zone})
	}
	c.Categories = []string{"basic", "premium", "enterprise", "dedicated"}
	for _, region := range c.Regions {
		zones := zoneNames(region)
		key := region.ShortName
		c.Flavors[key] = defaultFlavors(key, zones)
		c.VolumeTypes[key] = defaultVolumeTypes(zones)
		c.Images[key] = defaultImages(key)
		c.VPCs[key] = defaultVPCs(key, zones)
		c.Firewalls[key] = defaultFirewalls(key)
	}
	c.CustomImages[RegionHN] = []CustomImage{
		customImage("golden-node", "active", ptr.To(5368709120)),
		customImage("golden-node-next", "queued", nil),
	}
	c.Snapshots[RegionHN] = []Snapshot{{
		ID: StableID("snapshot", "golden"), Name: "golden-node_rootdisk@06-05-2024", Status: "available", Size: 20,
		VolumeID: StableID("snapshot-volume", "golden"), VolumeTypeID: StableID("volume-type", "PREMIUM-SSD1"), BillingPlan: PlanOnDemand,
		Type: "SSD", CreatedAt: "2024-05-06T16:45:12.000000", UpdatedAt: "2024-05-06T16:45:12.000000", Progress: "100%",
		Metadata: map[string]string{"category": "premium"},
		Category: "premium", ZoneName: "HN1", RegionName: "HaNoi", Bootable: true,
	}}
	return c
}

func zoneNames(region Region) []string {
	var names []string
	for _, zone := range region.Zones {
		names = append(names, zone.ShortName)
	}
	return names
}

func customImage(name, status string, size *int) CustomImage {
	id := StableID("custom-image", name)
	return CustomImage{
		ID: id, Name: name, Status: status, DiskFormat: "raw", ContainerFormat: "bare", Visibility: "private", Size: size,
		CreatedAt: catalogTime, UpdatedAt: catalogTime, Tags: []string{}, File: "/v2/images/" + id + "/file", Schema: "/v2/schemas/image",
		Locations: []ImageLocation{{URL: "rbd://sandbox/images/" + id, Metadata: map[string]string{}}},
	}
}

// DefaultMinor is the minor version of Kubernetes of the cluster, 35 for v1.35.
const DefaultMinor = 35

// ClusterVersion is the version of the cluster in the versions of Versions.
func ClusterVersion(minor int) string { return fmt.Sprintf("v1.%d.4", minor) }

// Versions are those around a cluster of a minor version: one above the cluster's patch, one without an image and a newer minor,
// because each tempts a client to take the wrong image.
func Versions(minor int) []KubernetesVersion {
	var versions []KubernetesVersion
	for _, known := range []struct {
		minor   int
		patches []string
	}{
		{minor - 2, []string{"5", "9"}}, {minor - 1, []string{"2", "6", "6.flatcar"}}, {minor, []string{"1", "2", "4", "4.flatcar", "6"}}, {minor + 1, []string{"0"}},
	} {
		for _, patch := range known.patches {
			version := fmt.Sprintf("v1.%d.%s", known.minor, patch)
			id := strings.ReplaceAll(StableID("version", version), "-", "")[:24]
			image := StableID("worker-image", version)
			if known.minor == minor && patch == "1" {
				image = ""
			}
			versions = append(versions, KubernetesVersion{
				ID: id, Name: version + "-" + id[:8], KubernetesVersion: version, WorkerImageID: image,
				LocalDNSSupported: true, CNIPluginSupported: []string{"cilium", "kube-router"},
			})
		}
	}
	return versions
}

func defaultImages(region string) []OSImage {
	var images []OSImage
	for _, image := range []struct {
		os       string
		versions []string
	}{
		{"Ubuntu", []string{"20.04 x64", "22.04 x64", "24.04 x64"}},
		{"Debian", []string{"11 x64", "12 x64"}},
		{"AlmaLinux", []string{"8 x64", "9 x64"}},
	} {
		entry := OSImage{OS: image.os}
		for _, version := range image.versions {
			entry.Versions = append(entry.Versions, ImageVersion{Name: version, ID: StableID("image", region, image.os, version)})
		}
		images = append(images, entry)
	}
	return images
}

func defaultVolumeTypes(zones []string) []VolumeType {
	var types []VolumeType
	for _, entry := range []struct{ name, category, kind string }{
		{"BASIC_HDD1", "basic", "HDD"}, {"BASIC_SSD1", "basic", "SSD"},
		{"PREMIUM-HDD1", "premium", "HDD"}, {"PREMIUM-SSD1", "premium", "SSD"},
		{"ENTERPRISE-HDD1", "enterprise", "HDD"}, {"ENTERPRISE-SSD1", "enterprise", "SSD"},
		{"DEDICATED-HDD1", "dedicated", "HDD"}, {"DEDICATED-SSD1", "dedicated", "SSD"},
	} {
		where := zones
		if entry.name == "DEDICATED-HDD1" {
			where = zones[:1]
		}
		types = append(types, VolumeType{Name: entry.name, Category: entry.category, Type: strings.ToUpper(entry.category) + " " + entry.kind,
			AvailabilityZones: where})
	}
	return types
}

func defaultVPCs(region string, zones []string) []VPC {
	vpcs := []VPC{
		vpcNetwork(region, "default-vpc", "10.108.16.0/20", "10.108.16.2", "10.108.31.254", zones),
		vpcNetwork(region, "kubernetes", "10.20.0.0/18", "10.20.0.2", "10.20.63.254", zones),
		vpcNetwork(region, "one-zone", "10.30.0.0/24", "10.30.0.2", "10.30.0.254", zones[:1]),
		vpcNetwork(region, "tiny", "10.31.0.0/29", "10.31.0.2", "10.31.0.4", zones),
	}
	vpcs[0].IsDefault = true
	vpcs[0].Tags = []string{"default-vpc-network"}
	vpcs[0].InternetGateway = ptr.To(StableID("internet-gateway", region, "default-vpc"))
	return vpcs
}

func vpcNetwork(region, name, cidr, first, last string, zones []string) VPC {
	id := StableID("vpc", region, name)
	return VPC{
		ID: id, Name: name, AdminStateUp: true, MTU: 1500, Status: "ACTIVE", AvailabilityZoneHints: zones, AvailabilityZones: zones,
		PortSecurityEnabled: true, Tags: []string{}, CreatedAt: catalogTime, UpdatedAt: catalogTime, RevisionNumber: 1,
		Subnets: []Subnet{{
			ID: StableID("subnet", region, name), Name: name, NetworkID: id, IPVersion: 4, EnableDHCP: true, CIDR: cidr,
			AllocationPools: []IPPool{{Start: first, End: last}}, DNSNameservers: []string{"123.31.12.1"}, HostRoutes: []string{},
			ServiceTypes: []string{}, Tags: []string{}, CreatedAt: catalogTime,
		}},
	}
}

func defaultFirewalls(region string) []Firewall {
	var firewalls []Firewall
	for _, entry := range []struct{ name, description string }{
		{"default", "Default security group"}, {"kubernetes-nodes", "Worker nodes"}, {"web", "HTTP and HTTPS"},
	} {
		id := StableID("firewall", region, entry.name)
		firewalls = append(firewalls, Firewall{
			ID: id, Name: entry.name, Description: entry.description, Tags: []string{}, CreatedAt: catalogTime, UpdatedAt: catalogTime,
			RevisionNumber: 1, RulesCount: 2,
			Inbound: []FirewallRule{{
				ID: StableID("rule", id, "in"), SecurityGroupID: id, EtherType: "IPv4", Direction: "ingress", Protocol: ptr.To("tcp"),
				PortRangeMin: ptr.To(22), PortRangeMax: ptr.To(22), RemoteIPPrefix: ptr.To("0.0.0.0/0"), Description: "SSH", Type: "SSH",
				CIDR: "0.0.0.0/0", PortRange: ptr.To("22"), Tags: []string{}, CreatedAt: catalogTime,
			}},
			Outbound: []FirewallRule{{
				ID: StableID("rule", id, "out"), SecurityGroupID: id, EtherType: "IPv4", Direction: "egress", Description: "ALL OUT",
				Tags: []string{}, CreatedAt: catalogTime,
			}},
		})
	}
	return firewalls
}

type family struct {
	prefix, category, generation, vendor string
	zones                                int // how many of the region's zones, from the first
	sizes                                string
}

// families are the new names. The AMD generation is not everywhere, so that a zone can be the wrong one.
var families = []family{
	{"b2", "basic", "gen2", "Intel", 2, "1x1 1x2 2x2 2x4 4x8"},
	{"p2", "premium", "gen2", "Intel", 2, "1x1 1x2 2x2 2x4 4x4 4x8 4x16 8x16 8x32 16x32 16x64 32x64"},
	{"e2", "enterprise", "gen2", "Intel", 2, "2x4 4x8 4x16 8x16 8x32 16x32 16x64 32x64 32x128 64x128"},
	{"d2", "dedicated", "gen2", "Intel", 2, "4x8 8x16 8x32 16x64 32x128 64x256"},
	{"p4a", "premium", "gen4", "AMD", 1, "2x2 2x4 4x8 4x16 8x16 8x32 16x32 16x64 32x128"},
	{"e4a", "enterprise", "gen4", "AMD", 2, "4x8 8x16 8x32 16x64 32x128 64x256"},
	{"d4a", "dedicated", "gen4", "AMD", 1, "8x32 16x64 32x128 64x256"},
}

func defaultFlavors(region string, zones []string) []Flavor {
	flavors := oldFlavors(region)
	generations := map[string]*Generation{}
	for _, f := range families {
		where := zones[:min(f.zones, len(zones))]
		if region != RegionHN && f.generation == "gen4" {
			continue
		}
		code := f.prefix
		generations[code] = &Generation{
			ID: StableID("generation", region, code), Name: f.vendor + " " + f.generation, Code: code, Category: f.category, Vendor: f.vendor,
			Model: f.generation, Group: f.category, Description: f.category + " on " + f.vendor, AvailabilityZones: where,
		}
		for _, size := range strings.Fields(f.sizes) {
			var cpu, ram int
			_, _ = fmt.Sscanf(size, "%dx%d", &cpu, &ram)
			flavors = append(flavors, newFlavor(region, fmt.Sprintf("%s.%dc_%dg", f.prefix, cpu, ram), f.category, cpu, ram, generations[code]))
		}
	}
	if region == RegionHN {
		for count, size := range map[int][2]int{1: {8, 32}, 2: {16, 64}} {
			flavor := newFlavor(region, fmt.Sprintf("p2.%dc_%dg_%dxa30", size[0], size[1], count), "premium", size[0], size[1], generations["p2"])
			flavor.GPU = &GPU{Name: "NVIDIA A30", Count: count}
			flavor.Zones = zones[:1]
			flavor.BillingPlans = []string{PlanOnDemand}
			flavors = append(flavors, flavor)
		}
	}
	slices.SortFunc(flavors, func(a, b Flavor) int { return strings.Compare(a.ID, b.ID) })
	return flavors
}

func newFlavor(region, name, category string, cpu, ram int, generation *Generation) Flavor {
	flavor := Flavor{
		ID: StableID("flavor", region, name), Name: name, RAM: ram * 1024, VCPUs: cpu, Category: category,
		BillingPlans: []string{PlanSaving, PlanOnDemand}, IsNew: generation != nil,
	}
	if generation != nil {
		flavor.BillingPlans = append(flavor.BillingPlans, PlanSpot)
		flavor.GenerationID, flavor.Generation = generation.ID, generation
	}
	if cpu >= 64 && category == "dedicated" {
		flavor.BillingPlans = []string{PlanSaving}
	}
	return flavor
}

// oldFlavors are the names of before the generations: without generation, some without billing plans or category.
func oldFlavors(region string) []Flavor {
	var flavors []Flavor
	for _, entry := range []struct {
		name, category string
		cpu, ram       int
		omit           string
	}{
		{"nix.1c_1g", "premium", 1, 1, "generation generation_id billing_plans category"},
		{"nix.2c_2g", "premium", 2, 2, "generation generation_id billing_plans gpu"},
		{"nix.2c_4g", "premium", 2, 4, "generation generation_id"},
		{"nix.3c_6g", "premium", 3, 6, "generation generation_id billing_plans"},
		{"nix.4c_8g", "premium", 4, 8, "generation generation_id"},
		{"nix.8c_16g", "premium", 8, 16, ""},
		{"1c_2g_basic", "basic", 1, 2, "generation billing_plans"},
		{"2c_4g_basic", "basic", 2, 4, "generation billing_plans"},
		{"3c_6g_enterprise", "enterprise", 3, 6, "generation"},
		{"4c_8g_enterprise", "enterprise", 4, 8, ""},
		{"4c_8g_dedicated", "dedicated", 4, 8, "billing_plans"},
		{"8c_16g_dedicated", "dedicated", 8, 16, ""},
		{"1c_1g_vps", "vps", 1, 1, "generation"},
		{"2c_2g_vps", "premium", 2, 2, "generation billing_plans category"},
	} {
		flavor := newFlavor(region, entry.name, entry.category, entry.cpu, entry.ram, nil)
		flavor.Omit = strings.Fields(entry.omit)
		if strings.HasSuffix(entry.name, "_vps") {
			flavor.Zones = []string{} // another product, not a cloud server
		}
		flavors = append(flavors, flavor)
	}
	return flavors
}
