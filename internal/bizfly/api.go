// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bizfly is the thin adapter between this provider and BizFly Cloud. The API interface lists the calls that we
// make and no others; Client implements it over gobizfly and works around gobizfly's defects in its transport; every
// error that leaves the package is an *APIError or wraps a context error, and ClassOf classifies it. Nothing above this
// package matches an error by its text or knows what an HTTP status is.
package bizfly

import (
	"cmp"
	"context"
	"fmt"

	"github.com/bizflycloud/gobizfly"
)

// planWords are the API's words for the plans of a NodeClass.
var planWords = map[string]string{
	"OnDemand": "on_demand", "SavingPlan": "saving_plan",
	"FreeDataTransfer": "free_datatransfer", "FreeBandwidth": "free_bandwidth",
}

// PlanWord returns the API's word for a billing plan or network plan of a NodeClass.
func PlanWord[P ~string](plan P) string { return cmp.Or(planWords[string(plan)], string(plan)) }

// API is what the provider asks of BizFly Cloud. Each method honours its context, has a deadline of its own when the
// context has none, and returns typed errors (see APIError). Lists are complete or an error, never silently short. What
// a method returns is the caller's, who may change it.
type API interface {
	ServerAPI
	CatalogAPI
	NetworkAPI
	KubernetesAPI

	// Scope returns what the last login proved: which host, region and project every other call talks about. It logs
	// in when that has not happened yet.
	Scope(ctx context.Context) (Scope, error)
	// Account says whether the account can order, and which services the configured region has. An answer without the
	// former comes with its error.
	Account(ctx context.Context) (Account, error)
}

// ServerAPI is the servers, their tasks and the volumes that they own.
type ServerAPI interface {
	// ListServers returns every server of the project in the configured region, also those that others created.
	ListServers(ctx context.Context) ([]*gobizfly.Server, error)
	// GetServer returns one server; IsNotFound only after a JSON 404 of the right host for exactly this id.
	GetServer(ctx context.Context, id string) (*gobizfly.Server, error)
	// GetServerMetadata returns the metadata of one server with the secrets in it, which every other call leaves out: the
	// token with which a server has joined BKE. What it returns is never logged.
	GetServerMetadata(ctx context.Context, id string) (map[string]string, error)
	// CreateServer creates one server (quantity 1) and returns the id of the task that builds it. It is sent at most
	// once: IsAmbiguous says that a server may exist, IsNotSent that none does.
	CreateServer(ctx context.Context, request *gobizfly.ServerCreateRequest) (taskID string, err error)
	// DeleteServer requests the deletion of the server and of the volumes listed. Others are kept by the cloud.
	DeleteServer(ctx context.Context, id string, volumeIDs []string) error
	// RebootServer resets a server without asking its operating system, which does not answer when a node hangs. It is
	// sent at most once per call; IsConflict while the server is in a state that forbids it.
	RebootServer(ctx context.Context, id string) error
	// GetTask reads one asynchronous task.
	GetTask(ctx context.Context, id string) (*Task, error)
	// ListVolumes returns every volume of the project in the configured region.
	ListVolumes(ctx context.Context) ([]*gobizfly.Volume, error)
	// DeleteVolume deletes one volume; a volume that is already gone is IsNotFound.
	DeleteVolume(ctx context.Context, id string) error
}

// CatalogAPI is what the cloud offers: regions, flavors, categories, volume types and images.
type CatalogAPI interface {
	// ListRegions returns the regions with their zones, in no order.
	ListRegions(ctx context.Context) ([]gobizfly.Region, error)
	// ListFlavors returns all flavors with vCPU count, memory in MiB (field RAM), GPU, generation and billing plans.
	ListFlavors(ctx context.Context) ([]*gobizfly.ServerFlavorResponse, error)
	// ListVolumeTypes returns all volume types with the category and zones that they belong to.
	ListVolumeTypes(ctx context.Context) ([]*gobizfly.VolumeType, error)
	// ListOSImages returns the public operating system images, one entry per distribution and version.
	ListOSImages(ctx context.Context) ([]OSImage, error)
	// ListCustomImages returns the project's own images.
	ListCustomImages(ctx context.Context) ([]*gobizfly.CustomImage, error)
	// ListSnapshots returns the project's snapshots of volumes, with the size of each in GiB.
	ListSnapshots(ctx context.Context) ([]*gobizfly.Snapshot, error)
}

// NetworkAPI is what servers are attached to and reached by.
type NetworkAPI interface {
	// ListVPCNetworks returns the VPC networks of the project in the configured region.
	ListVPCNetworks(ctx context.Context) ([]*gobizfly.VPCNetwork, error)
	// ListNetworkInterfaces returns the network interfaces of the project, LAN and WAN.
	ListNetworkInterfaces(ctx context.Context) ([]*gobizfly.NetworkInterface, error)
	// AddFirewalls attaches firewalls to an interface, private or public, beside those that it has.
	AddFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error
	// RemoveFirewalls takes firewalls off an interface; one that it does not have is no error.
	RemoveFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error
	// ListFirewalls returns the firewalls of the project.
	ListFirewalls(ctx context.Context) ([]*gobizfly.Firewall, error)
	// ListSSHKeys returns the key pairs of the user, whose names servers refer to.
	ListSSHKeys(ctx context.Context) ([]*gobizfly.KeyPair, error)
}

// KubernetesAPI is the BizFly Kubernetes Engine (BKE).
type KubernetesAPI interface {
	// ListKubernetesVersions returns the versions that BKE knows with the worker image of each; the image id may be
	// empty. Flatcar images are versions of their own, for example "v1.31.13.flatcar".
	ListKubernetesVersions(ctx context.Context) ([]gobizfly.ControllerVersion, error)
	// GetCluster returns one BKE cluster: its version, VPC network and whether it uses a local DNS.
	GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error)
	// GetLaunchConfigurationMetadata returns the metadata of the servers that a launch configuration of Auto Scaling
	// launches, with the secrets in it: each worker pool has one. What it returns is never logged.
	GetLaunchConfigurationMetadata(ctx context.Context, id string) (map[string]string, error)
	// LeaveCluster tells BKE that a node is gone. It is idempotent: a node that BKE does not know is no error.
	LeaveCluster(ctx context.Context, clusterUID, clusterToken, nodeName string) error
}

// Task is one asynchronous operation of the cloud, for example the creation of a server.
type Task struct {
	// Ready is true once the task has ended, well or not.
	Ready bool
	// Failure is why it ended badly, else nil: the same classes describe a synchronous rejection and a failed task.
	Failure error
	// Server is the server that the task made; nil when the task did not name one.
	Server *gobizfly.Server
}

// OSImage is one public operating system image, for example of the distribution Ubuntu in the version "24.04 x64".
type OSImage struct{ ID, Distribution, Version string }

// Account is what is known of the account before anything is ordered.
type Account struct {
	// Unpaid is what is unpaid; empty where nothing is.
	Unpaid string
	// Balance is in VND; nil where the account does not show it.
	Balance *float64
	// Services are the names of the services of the configured region, sorted.
	Services []string
}

// Scope says on whose behalf and where the client acts. A 404 means "gone" only within the scope in which the object
// was made, so the scopes are compared before absence is interpreted.
type Scope struct {
	// Host is the host (and port) of the configured endpoint.
	Host string
	// Region is the region's long name, for example HaNoi.
	Region string
	// ProjectID is the project of the token's reply, not the one that was asked for.
	ProjectID string
}

// String is for messages.
func (s Scope) String() string {
	return fmt.Sprintf("project %s in region %s at %s", s.ProjectID, s.Region, s.Host)
}
