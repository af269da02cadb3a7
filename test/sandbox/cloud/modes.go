// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
	"strings"
)

// The forms in which a create request may name the volume type of its disks. GET /volume-types shows both a name and a type.
const (
	VolumeTypesByName    = "name"
	VolumeTypesByType    = "type"
	VolumeTypesByMedium  = "medium" // rootdisk.type HDD or SSD; the category is the server's
	VolumeTypesInAnyForm = "any"
)

// The forms in which a create request may name a flavor. Flavors of the new generations have one name only.
const (
	FlavorsByFullName  = "full"
	FlavorsByShortName = "short"
	FlavorsByAnyName   = "any"
)

// Shape is how this cloud differs from the plain one. Modes set it.
type Shape struct {
	// VolumeTypes and Flavors are the only forms that a create request is accepted in; empty is by name, and by full name.
	VolumeTypes, Flavors string
	// VolumeTypesSwapped lists volume types as {name SSD, type PREMIUM-SSD1} instead of {name PREMIUM-SSD1, type "PREMIUM SSD"}.
	VolumeTypesSwapped bool
	// SilentFlavors and SilentVolumeTypes reject flavors, and volume types of a create request, without naming the field.
	SilentFlavors, SilentVolumeTypes bool
	// LateRejections accepts create requests that are wrong and lets their tasks fail.
	LateRejections bool
	// OldFlavorsClosed rejects create requests of flavors without a generation, which stay listed.
	OldFlavorsClosed bool
	// TokenWithoutProject leaves the project out of the reply to a login.
	TokenWithoutProject bool
	// Down are endpoints that answer 503, for example "/regions".
	Down []string
	// TaskWithoutSuccess leaves "success" out of tasks that have succeeded.
	TaskWithoutSuccess bool
	// PoolFirewall gives the servers of pools a firewall of their own. Without it, a server's node does not become ready.
	PoolFirewall bool
	// PublicPools gives the servers of pools a public address.
	PublicPools bool
	// InterfacesWithoutType lists network interfaces without their type, as gobizfly's fixtures show them.
	InterfacesWithoutType bool
	// PoolServersElsewhere keeps the servers of pools in a project that is not the account's.
	PoolServersElsewhere bool
	// PoolMetadataLacks are keys that the metadata of pool servers lacks, and LaunchMetadataLacks that of launch configurations.
	PoolMetadataLacks, LaunchMetadataLacks []string
	// WorkerMinimum lets servers with less than 2 vCPUs or 2 GiB never join.
	WorkerMinimum bool
	// ProblemDetector gives nodes the conditions of BizFly Cloud's node-problem-detector.
	ProblemDetector bool
	// PoolVersion is the version of Kubernetes of worker pools; empty is the control plane's.
	PoolVersion string
	// KeepsAutoscaling ignores that a change of a worker pool switches its autoscaling off.
	KeepsAutoscaling bool
}

// Mode is one shape of the cloud that public evidence shows, or leaves open, beside that of the plain sandbox.
type Mode struct {
	// Name is how Options.Modes and --mode name it.
	Name string
	// What is what the cloud does in it.
	What string
	// Excludes is what modes have in common that cannot be combined; empty combines with all.
	Excludes string
	apply    func(*Options)
}

// Modes are all modes. docs/contribute/sandbox.md lists them.
var Modes = []Mode{
	{Name: "volume-type-by-type", Excludes: "volume types", What: `requests name disks by the type ("PREMIUM SSD")`,
		apply: func(o *Options) { o.Shape.VolumeTypes = VolumeTypesByType }},
	{Name: "volume-type-by-medium", Excludes: "volume types", What: "requests have `rootdisk.type` SSD or HDD",
		apply: func(o *Options) { o.Shape.VolumeTypes = VolumeTypesByMedium }},
	{Name: "volume-types-swapped", Excludes: "volume types", What: "listed are {name SSD, type PREMIUM-SSD1}, and requests name the type",
		apply: func(o *Options) { o.Shape.VolumeTypesSwapped, o.Shape.VolumeTypes = true, VolumeTypesByType }},
	{Name: "volume-types-swapped-by-name", Excludes: "volume types", What: "the same, and requests name SSD",
		apply: func(o *Options) { o.Shape.VolumeTypesSwapped = true }},
	{Name: "volume-types-swapped-by-medium", Excludes: "volume types", What: "the same, and requests have `rootdisk.type`",
		apply: func(o *Options) { o.Shape.VolumeTypesSwapped, o.Shape.VolumeTypes = true, VolumeTypesByMedium }},
	{Name: "short-flavor-names", What: "requests name old flavors without category (`2c_4g` for `nix.2c_4g`)",
		apply: func(o *Options) { o.Shape.Flavors = FlavorsByShortName }},
	{Name: "silent-flavors", Excludes: "words", What: "an unknown flavor is rejected without naming the field",
		apply: func(o *Options) { o.Shape.SilentFlavors = true }},
	{Name: "silent-volume-types", Excludes: "words", What: "an unknown volume type is rejected without naming the field",
		apply: func(o *Options) { o.Shape.SilentVolumeTypes = true }},
	{Name: "vietnamese", Excludes: "words", What: "rejections are in Vietnamese (also `--vietnamese`)",
		apply: func(o *Options) { o.Vietnamese = true }},
	{Name: "late-rejections", What: "wrong create requests are accepted, and their tasks fail",
		apply: func(o *Options) { o.Shape.LateRejections = true }},
	{Name: "old-flavors-closed", What: "flavors without a generation are listed and cannot be launched",
		apply: func(o *Options) { o.Shape.OldFlavorsClosed = true }},
	{Name: "token-without-project", What: "the reply to a login has no `project_id`",
		apply: func(o *Options) { o.Shape.TokenWithoutProject = true }},
	{Name: "no-account-service", Excludes: "pools", What: "the catalog has neither `bizfly_account` nor `auto_scaling`",
		apply: func(o *Options) {
			o.OmitServices = append(slices.Clone(o.OmitServices), "bizfly_account", "auto_scaling")
		}},
	{Name: "services-without-region", What: `all services are of region ""`,
		apply: func(o *Options) { o.ServiceRegions = RegionsNone }},
	{Name: "regions-down", What: "`GET /regions` answers 503", apply: down("/regions")},
	{Name: "task-without-success", What: "successful tasks have no `success`",
		apply: func(o *Options) { o.Shape.TaskWithoutSuccess = true }},
	{Name: "nvme", What: "all zones but the first have NVMe instead of SSD", apply: nvme},
	{Name: "pool-firewall", Excludes: "pools", What: "servers of pools have a firewall, without which nodes do not become ready",
		apply: func(o *Options) { o.Shape.PoolFirewall = true }},
	{Name: "public-pools", What: "servers of pools have a public address",
		apply: func(o *Options) { o.Shape.PublicPools = true }},
	{Name: "interfaces-without-type", What: "network interfaces are listed without `type`",
		apply: func(o *Options) { o.Shape.InterfacesWithoutType = true }},
	{Name: "pool-servers-elsewhere", Excludes: "pools", What: "servers of pools cannot be read; launch configurations can",
		apply: func(o *Options) { o.Shape.PoolServersElsewhere = true }},
	{Name: "pool-metadata-without-token", Excludes: "pools", What: "only metadata of launch configurations has the join token",
		apply: func(o *Options) { o.Shape.PoolMetadataLacks = []string{"bke_cluster_token"} }},
	{Name: "pool-metadata-without-endpoint", Excludes: "pools", What: "neither has a join endpoint: it follows from the API server's name",
		apply: func(o *Options) {
			o.Shape.PoolMetadataLacks, o.Shape.LaunchMetadataLacks = poolEndpoints, poolEndpoints
		}},
	{Name: "worker-minimum", What: "servers with less than 2 vCPUs or 2 GiB never join",
		apply: func(o *Options) { o.Shape.WorkerMinimum = true }},
	{Name: "pools-keep-autoscaling", What: "a PATCH of a pool with `enable_autoscaling: false` changes nothing",
		apply: func(o *Options) { o.Shape.KeepsAutoscaling = true }},
	{Name: "pools-behind", What: "the control plane is a minor version newer than its pools", apply: func(o *Options) {
		o.Version, o.Shape.PoolVersion = fmt.Sprintf("v1.%d.0", DefaultMinor+1), ClusterVersion(DefaultMinor)
	}},
	{Name: "problem-detector", What: "nodes have the conditions of BizFly Cloud's node-problem-detector, healthy ones with reasons like `FilesystemIsReadOnly`",
		apply: func(o *Options) { o.Shape.ProblemDetector = true }},
	{Name: "any-form", Excludes: "volume types", What: "requests name volume types and flavors in any form, for other clients",
		apply: func(o *Options) { o.Shape.VolumeTypes, o.Shape.Flavors = VolumeTypesInAnyForm, FlavorsByAnyName }},
}

// poolEndpoints are the keys of metadata by which a server finds its cluster.
var poolEndpoints = []string{"bke_join_endpoint", "bke_log_endpoint"}

// ModeNamed returns a mode by its name. It panics where there is none, since it is the test that is wrong.
func ModeNamed(name string) Mode {
	i := slices.IndexFunc(Modes, func(m Mode) bool { return m.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("there is no mode %q", name))
	}
	return Modes[i]
}

func down(path string) func(*Options) {
	return func(o *Options) { o.Shape.Down = append(slices.Clone(o.Shape.Down), path) }
}

// nvme renames the SSD types of all zones but the first of each region.
func nvme(o *Options) {
	if o.Catalog == nil {
		o.Catalog = DefaultCatalog()
	}
	for _, region := range o.Catalog.Regions {
		var types []VolumeType
		for _, t := range o.Catalog.VolumeTypes[region.ShortName] {
			if strings.HasSuffix(t.Type, "SSD") && len(t.AvailabilityZones) > 1 {
				types = append(types, VolumeType{Name: strings.Replace(t.Name, "SSD", "NVME", 1), Category: t.Category,
					Type: strings.Replace(t.Type, "SSD", "NVME", 1), AvailabilityZones: t.AvailabilityZones[1:]})
				t.AvailabilityZones = t.AvailabilityZones[:1]
			}
			types = append(types, t)
		}
		o.Catalog.VolumeTypes[region.ShortName] = types
	}
}

// listedVolumeType is a volume type as GET /volume-types shows it.
func (c *Cloud) listedVolumeType(t VolumeType) VolumeType {
	if c.opts.Shape.VolumeTypesSwapped {
		t.Name, t.Type = t.Type[strings.LastIndex(t.Type, " ")+1:], t.Name
	}
	return t
}

// isDown reports whether the endpoint of a request answers nothing but 503.
func (c *Cloud) isDown(q *call) bool {
	return slices.Contains(c.opts.Shape.Down, "/"+strings.Join(q.route.template, "/"))
}
