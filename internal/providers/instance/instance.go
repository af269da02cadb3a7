// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instance launches, lists and deletes servers together with the disks and interfaces that they own. Identity
// is the UID of a NodeClaim and of the cluster, in the servers' metadata.
package instance

import (
	"errors"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Server states that decide something here; any other one means that the server exists. The last three are those of
// servers that are being deleted, or gone and still listed.
const (
	StatusActive      = "ACTIVE"
	StatusBuild       = "BUILD"
	StatusError       = "ERROR"
	StatusShutoff     = "SHUTOFF"
	StatusReboot      = "REBOOT"
	StatusHardReboot  = "HARD_REBOOT"
	StatusDeleting    = "DELETING"
	StatusDeleted     = "DELETED"
	StatusSoftDeleted = "SOFT_DELETED"
)

// Volume is a disk of a server.
type Volume struct {
	ID      string
	Name    string
	SizeGiB int
	// Medium is SSD or HDD; empty where the cloud reports none that is known.
	Medium v1alpha1.DiskMedium
	// Root is true for the disk that the server boots from.
	Root bool

	// attachedType is how the cloud says that it is attached; empty where it does not.
	attachedType string
}

// Instance is a server of this cluster.
type Instance struct {
	ID string
	// Name is the server's name, and in lower case the node's.
	Name string
	// NameProven is true where the name proves that the server was launched by this cluster: it is the one that it was
	// launched under, or what the cloud has made of it. Metadata prove less, since a copy of a server may have them
	// too.
	NameProven bool
	// Status is the cloud's own word, for example ACTIVE.
	Status string
	// Flavor is the flavor's name as the catalog has it.
	Flavor      string
	Zone        string
	BillingPlan string
	ImageID     string
	// UserDataHash is the hash of the templates of its user data; empty where it had none.
	UserDataHash string
	// DataDisks is how many disks beside the root disk it was launched with.
	DataDisks int
	// ClusterUID, NodeClaim, NodeClaimUID, NodePool, NodeClass and Attempt are what we wrote into its metadata.
	ClusterUID   string
	NodeClaim    string
	NodeClaimUID string
	NodePool     string
	NodeClass    string
	Attempt      int
	// CreatedAt is when the cloud created it; zero when the cloud does not say.
	CreatedAt time.Time
	Volumes   []Volume

	// launchName is the name under which it was launched, which its disks and interfaces carry; empty where it is not
	// ours.
	launchName string
}

// Failed reports whether the server will never run.
func (i *Instance) Failed() bool { return i.Status == StatusError }

// Stopped reports whether the server runs nothing until it is started, although nothing has failed.
func (i *Instance) Stopped() bool { return notRunning.Has(i.Status) && !i.Failed() }

// Deleting reports whether the server is being deleted or gone.
func (i *Instance) Deleting() bool { return i.Status == StatusDeleting || i.Gone() }

// Gone reports whether the server is only still listed.
func (i *Instance) Gone() bool { return i.Status == StatusDeleted || i.Status == StatusSoftDeleted }

// Intent is what is recorded before a create request is sent: a server may exist, under this name.
type Intent struct {
	// Attempt counts the create requests for one NodeClaim from 1.
	Attempt int `json:"attempt"`
	// Name is the server's name, which is never used again.
	Name string `json:"name"`
	// Flavor, Zone and BillingPlan are the offering that is requested.
	Flavor      string `json:"flavor"`
	Zone        string `json:"zone"`
	BillingPlan string `json:"billingPlan"`
	ImageID     string `json:"imageID,omitempty"`
	// Disks are the root disk and then the data disks, with the volume type that each is to have. They are for the
	// request alone.
	Disks []catalog.Disk `json:"-"`
	// Networks are the ids of the VPC networks.
	Networks []string `json:"networks"`
	// Firewalls are the ids of the firewalls; with none, the cloud attaches its default one.
	Firewalls []string `json:"firewalls"`
	// RequestedAt is when the intent was recorded; once the cloud has answered, when it did.
	RequestedAt time.Time `json:"requestedAt"`
	// Forms are those in which the create request was sent, by field; empty until the cloud has answered.
	Forms map[string]string `json:"forms,omitempty"`
	// TaskID is the task that builds the server; empty until the cloud has named it.
	TaskID string `json:"taskID,omitempty"`
	// Rejected is true once it is known that nothing is built for this attempt, so that another may be made.
	Rejected bool `json:"rejected,omitempty"`
}

// LaunchRequest is one server to launch.
type LaunchRequest struct {
	// NodeClaim is what the server is for; its taints are those that the node registers with.
	NodeClaim *karpv1.NodeClaim
	// NodeClass is the resolved NodeClass; image, networks, firewalls and key are those of its status.
	NodeClass *v1alpha1.BizflyNodeClass
	// Attempt is the number of this create request, from 1.
	Attempt int
	// Flavor, Category, Zone and BillingPlan are the offering to request.
	Flavor      string
	Category    string
	Zone        string
	BillingPlan string
	CPU         int
	MemoryMiB   int
	// Labels are those that the node registers with where the bootstrap can carry them.
	Labels map[string]string
}

// ErrAwaitingServerID means that the create request was accepted and the server's id is not known yet: call Resume.
var ErrAwaitingServerID = errors.New("the create request was accepted and the server has no id yet")

// ErrOutcomeUnknown means that it will never be known whether the create request had an effect: the visibility window
// has passed without a task result or a server. The NodeClaim must end; garbage collection deletes a server that comes
// late.
var ErrOutcomeUnknown = errors.New("the cloud never answered whether the create request had an effect; a server that " +
	"appears late is garbage collected")

// ErrNotPrepared means that the user data or the metadata of the server could not be made, so that no create request
// was sent.
var ErrNotPrepared = errors.New("what the server is to join with could not be made")

// ErrFormRejected means that the cloud may have failed to build a server only because of the form in which the create
// request named its flavor or disks, and that the next request is in another form.
var ErrFormRejected = errors.New("the cloud may want another form of the create request")

// ErrNotFound means that the server provably does not exist any more.
var ErrNotFound = errors.New("the server does not exist")

// ErrUnpaid means that a stopped server is kept, because BizFly Cloud stops the servers of an account that is unpaid.
var ErrUnpaid = errors.New("stopped servers are not deleted while the account is unpaid")

// ErrNotOurs means that the server exists and nothing on it proves that it is this cluster's. It comes with
// ErrNotFound, because the caller must not wait for its deletion: it is not touched.
var ErrNotOurs = errors.New("nothing on the server proves it to be this cluster's")

// ErrBuildFailed means that the cloud accepted the create request and then failed to build the server. The predicates
// of package bizfly classify its cause. What was left of the server is being deleted.
var ErrBuildFailed = errors.New("the cloud failed to build server")

// DeleteRequest is one server to delete, and what is known of it.
type DeleteRequest struct {
	ID string
	// Node is the name of the server's node as far as the caller knows, for BKE. A name that is not provably that of a
	// server of this cluster is ignored.
	Node string
	// Since is when the deletion began: a server is gone only if a list that began later lacks it. Zero accepts a list
	// of a few seconds ago.
	Since time.Time
	// RecordedVolumes are the ids of the disks that were attached before any pod could have attached one, the root disk
	// included; nil where they were not recorded. A record proves nothing by itself: a disk on it is deleted only if it
	// is attached to the server as well.
	RecordedVolumes []string
}

// Leftover is a free disk whose name proves that a server of this cluster was launched with it. No server of this
// cluster has it.
type Leftover struct {
	ID string
	// Name is its own name, and Server the name under which its server was launched.
	Name   string
	Server string
	// CreatedAt is zero where the cloud does not say.
	CreatedAt time.Time
	// Kept is why it is not deleted: it may be what a user wanted to keep. Empty where it can be deleted.
	Kept string
}
