// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"time"

	"k8s.io/utils/clock"
)

// Options describe the cloud. The zero value is a fast one without faults.
type Options struct {
	// Seed makes ids, addresses and tokens reproducible.
	Seed int64
	// Clock is what all progress is computed from; nil is the real one.
	Clock clock.Clock
	// Prices are those of the bill; the zero value is DefaultPrices.
	Prices Prices
	// Latency is how long tasks take (create, delete); 0 means that they are ready at the next request.
	Latency time.Duration
	// Boot is how long an ACTIVE server takes until its guest joins; read by package guest.
	Boot time.Duration
	// DataDiskDelay is how long an ACTIVE server takes until it has its data disks; 0 means 20 s, about as recorded.
	DataDiskDelay time.Duration
	// TokenTTL is how long a token lives; 0 means 4 h, as documented.
	TokenTTL time.Duration
	// TokenPrefix is what every token begins with, so that a test recognises tokens where they must not be.
	TokenPrefix string
	// HideBuilding keeps a server in BUILD out of list and get until its task is ready.
	HideBuilding bool
	// AppendNameCode appends a code to the name of each server that is created, as a recorded reply has it: "multi-server-TNnUw4Im".
	AppendNameCode bool
	// ChangeNames gives each server that is created a name of the cloud's own instead of the requested one.
	ChangeNames bool
	// ConflictOnBuild rejects to delete a server in BUILD with 409.
	ConflictOnBuild bool
	// AsyncRejections makes insufficient capacity a failed task with a server in ERROR instead of a rejection of the call.
	AsyncRejections bool
	// Vietnamese words capacity and quota rejections in Vietnamese.
	Vietnamese bool
	// Catalog is what the cloud offers; nil is DefaultCatalog().
	Catalog *Catalog
	// OmitServices leaves canonical names out of the service catalog, for example "kubernetes_engine".
	OmitServices []string
	// ServiceRegions is how the service catalog writes regions: RegionsMixed (the default), RegionsScattered, RegionsLong or
	// RegionsShort.
	ServiceRegions string

	// Modes are names of Modes: shapes of the cloud that public evidence shows beside this one. An unknown name panics.
	Modes []string
	// Shape is what the modes set.
	Shape Shape

	// Project is the project of the credentials, Region their region (short name).
	Project string
	Region  string
	// DefaultProject is where a login that names no project lands; empty is Project.
	DefaultProject string
	// Email, Password, AppCredID and AppCredSecret are what POST /token accepts.
	Email, Password, AppCredID, AppCredSecret string

	// ClusterUID, ClusterToken, JoinEndpoint, LogEndpoint, Version and ClusterName describe the Kubernetes Engine's
	// cluster; what is empty is made up.
	ClusterUID, ClusterToken, JoinEndpoint, LogEndpoint, Version, ClusterName string
}

// Credentials are what the sandbox accepts at POST /token.
type Credentials struct {
	Email, Password          string
	AppCredID, AppCredSecret string
	ProjectID                string
	Region                   string
}

// BKE is the Kubernetes Engine's cluster, as its owner knows it.
type BKE struct {
	ClusterUID, ClusterToken  string
	JoinEndpoint, LogEndpoint string
	Version                   string
	NetworkID                 string
	ClusterName               string
}

// Quota limits what a project may hold over all regions; nil is unlimited.
type Quota struct {
	Instances *int `json:"instances,omitempty"`
	VCPUs     *int `json:"vcpus,omitempty"`
	// RAM is in MiB.
	RAM     *int `json:"ram,omitempty"`
	Volumes *int `json:"volumes,omitempty"`
	// Gigabytes is the total size of all volumes in GiB.
	Gigabytes *int `json:"gb,omitempty"`
	WanIPs    *int `json:"wan_ips,omitempty"`
	// Balance is what the account shows, in VND; 0 is a balance that lasts.
	Balance int `json:"balance,omitempty"`
	// Unpaid blocks the account: what it orders is answered by a 403 that says nothing, and GET /user has the reason.
	Unpaid bool `json:"unpaid,omitempty"`
	// Suspended is an account that is unpaid for so long that its service is suspended: all servers stop at once, and cannot be started
	// until it is paid. Then they stay stopped until somebody starts them.
	Suspended bool `json:"suspended,omitempty"`
}

// blocked reports whether the account can order nothing.
func (q Quota) blocked() bool { return q.Unpaid || q.Suspended }

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func (o Options) withDefaults() Options {
	if o.Prices.Compute == nil {
		o.Prices = DefaultPrices()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.DataDiskDelay == 0 {
		o.DataDiskDelay = 20 * time.Second
	}
	if o.TokenTTL == 0 {
		o.TokenTTL = 4 * time.Hour
	}
	if o.Catalog == nil {
		o.Catalog = DefaultCatalog()
	}
	for _, name := range o.Modes {
		ModeNamed(name).apply(&o)
	}
	o.Shape.VolumeTypes = orDefault(o.Shape.VolumeTypes, VolumeTypesByName)
	o.Shape.Flavors = orDefault(o.Shape.Flavors, FlavorsByFullName)
	o.ServiceRegions = orDefault(o.ServiceRegions, RegionsMixed)
	o.Project = orDefault(o.Project, "bc8d2790fc9a46949818b942c0a824de")
	o.DefaultProject = orDefault(o.DefaultProject, o.Project)
	o.Region = orDefault(o.Region, RegionHN)
	o.Email = orDefault(o.Email, "karpenter@sandbox.bizflycloud.vn")
	o.Password = orDefault(o.Password, "sandbox-password")
	o.AppCredID = orDefault(o.AppCredID, "9c1f5a7f2d1b4e6f8a3c5b7d9e0f1a2b")
	o.AppCredSecret = orDefault(o.AppCredSecret, "sandbox-app-credential-secret")
	o.ClusterUID = orDefault(o.ClusterUID, "zdckkshu1he44fsb")
	o.ClusterToken = orDefault(o.ClusterToken, "sandbox-cluster-token")
	o.ClusterName = orDefault(o.ClusterName, "sandbox")
	engine := "http://engine.api.k8saas.bizflycloud.vn/engine/"
	o.JoinEndpoint = orDefault(o.JoinEndpoint, engine+"cluster_join/"+o.ClusterUID)
	o.LogEndpoint = orDefault(o.LogEndpoint, engine+"cluster_log/"+o.ClusterUID)
	o.Version = orDefault(o.Version, ClusterVersion(DefaultMinor))
	return o
}
