// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariants states once what must hold in every cluster that this provider runs in, whatever fails. The
// simulations (test/simulation) and the chaos with real processes (test/e2e/faults) check it all the time.
package invariants

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// Observation is the cloud and the cluster at one moment. The cloud is read first, so that the NodeClaim of every server in it
// existed before NodeClaims were read.
type Observation struct {
	At     time.Time
	Cloud  cloud.State
	Claims []karpv1.NodeClaim
	Nodes  []corev1.Node
}

// ServerOf returns the server that a NodeClaim has.
func (o Observation) ServerOf(claim *karpv1.NodeClaim) (cloud.Server, bool) {
	return lo.Find(o.Cloud.Servers, func(s cloud.Server) bool { return providerid.New(s.ID) == claim.Status.ProviderID })
}

// ClaimUID returns the UID of the NodeClaim that a server was created for.
func ClaimUID(s cloud.Server) types.UID { return types.UID(s.Metadata[v1alpha1.MetadataNodeClaimUID]) }

// Checker checks observations against the invariants. It knows the servers and volumes of others and remembers what it saw.
type Checker struct {
	mu         sync.Mutex
	servers    map[string]cloud.Server // of others, as they must remain
	volumes    map[string]volume       // of PersistentVolumes and of others
	duplicates sets.Set[string]        // names of servers that the test itself created
	providers  map[types.UID]string
	created    map[types.UID]sets.Set[string] // server ids
}

type volume struct {
	name  string
	since time.Time
}

// NewChecker returns a Checker that has seen nothing.
func NewChecker() *Checker {
	return &Checker{
		servers: map[string]cloud.Server{}, volumes: map[string]volume{}, duplicates: sets.New[string](),
		providers: map[types.UID]string{}, created: map[types.UID]sets.Set[string]{},
	}
}

// AddForeignServers registers servers that this cluster does not own.
func (c *Checker) AddForeignServers(servers ...cloud.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range servers {
		c.servers[s.ID] = s
	}
}

// AddForeignVolume registers a volume that is no disk of a node, or must outlive it. Observations before that time do not have it.
func (c *Checker) AddForeignVolume(id, name string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.volumes[id] = volume{name: name, since: since}
}

// ForeignVolume reports whether a volume was registered as one that must remain.
func (c *Checker) ForeignVolume(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.volumes[id]
	return known
}

// AddDuplicate registers the name of a second server that the test itself creates for a NodeClaim.
func (c *Checker) AddDuplicate(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.duplicates.Insert(name)
}

// Created returns how many servers this cluster was seen to have, duplicates aside.
func (c *Checker) Created() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lo.SumBy(lo.Values(c.created), sets.Set[string].Len)
}

// Own returns the servers that are no foreign ones.
func (c *Checker) Own(o Observation) []cloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own(o)
}

func (c *Checker) own(o Observation) []cloud.Server {
	return lo.Reject(o.Cloud.Servers, func(s cloud.Server, _ int) bool { return lo.HasKey(c.servers, s.ID) })
}

// findings collects messages.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// Violations returns what is wrong at any time: a server or volume of others that is deleted or changed, two servers for one
// NodeClaim, two NodeClaims for one server, and a NodeClaim that changes its server.
func (c *Checker) Violations(o Observation) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found findings
	c.foreign(o, &found)
	c.claims(o, &found)
	c.oneServer(o, &found)
	return found
}

func (c *Checker) foreign(o Observation, found *findings) {
	servers := lo.KeyBy(o.Cloud.Servers, func(s cloud.Server) string { return s.ID })
	for id, before := range c.servers {
		now, exists := servers[id]
		if !exists || now.Status != before.Status || now.Name != before.Name || now.Truth.Deleting || !maps.Equal(now.Metadata, before.Metadata) {
			found.add("foreign server %s was changed or deleted", before.Name)
		}
	}
	volumes := lo.KeyBy(o.Cloud.Volumes, func(v cloud.Volume) string { return v.ID })
	for id, v := range c.volumes {
		if !lo.HasKey(volumes, id) && v.since.Before(o.At) {
			found.add("volume %s (%s), which is no disk of a node, is lost", id, v.name)
		}
	}
}

func (c *Checker) claims(o Observation, found *findings) {
	names := map[string]string{}
	for i := range o.Claims {
		claim := &o.Claims[i]
		id := claim.Status.ProviderID
		if before := c.providers[claim.UID]; before != "" && before != id {
			found.add("NodeClaim %s had server %s and now has %q", claim.Name, before, id)
		}
		if id == "" {
			continue
		}
		c.providers[claim.UID] = id
		if other, taken := names[id]; taken {
			found.add("NodeClaims %s and %s have the same server %s", other, claim.Name, id)
		}
		names[id] = claim.Name
	}
}

func (c *Checker) oneServer(o Observation, found *findings) {
	own := c.own(o)
	owners := lo.SliceToMap(own, func(s cloud.Server) (string, types.UID) { return providerid.New(s.ID), ClaimUID(s) })
	registered := map[types.UID]string{}
	for _, node := range o.Nodes {
		owner := owners[node.Spec.ProviderID]
		if node.Labels[karpv1.NodeRegisteredLabelKey] == "" || owner == "" {
			continue
		}
		if other, twice := registered[owner]; twice {
			found.add("two servers are registered for one NodeClaim: %s and %s", other, node.Name)
		}
		registered[owner] = node.Name
	}
	for _, s := range own {
		if c.duplicates.Has(s.Name) {
			continue
		}
		uid := ClaimUID(s)
		if c.created[uid] == nil {
			c.created[uid] = sets.New[string]()
		}
		if c.created[uid].Insert(s.ID); c.created[uid].Len() > 1 {
			found.add("%d servers were created for NodeClaim %s: %v", c.created[uid].Len(), uid, sets.List(c.created[uid]))
		}
	}
}

// Orphans returns the servers that a pass of the garbage collector must delete: those older than its grace period that belong
// to no NodeClaim, or to one that has another server.
func (c *Checker) Orphans(o Observation, grace time.Duration) []cloud.Server {
	providers := lo.SliceToMap(o.Claims, func(claim karpv1.NodeClaim) (types.UID, string) { return claim.UID, claim.Status.ProviderID })
	return lo.Filter(c.Own(o), func(s cloud.Server, _ int) bool {
		id, exists := providers[ClaimUID(s)]
		accounted := exists && (id == "" || id == providerid.New(s.ID))
		// The controller reads ages with a precision of seconds.
		return !accounted && !s.Truth.Deleting && o.At.Sub(s.Truth.CreatedAt) > grace+2*time.Second
	})
}

// Unsettled returns what is not as it must be once all faults have ended: every NodeClaim has a running, registered server, and
// no server, Node, disk, network interface or address is left without a NodeClaim.
func (c *Checker) Unsettled(o Observation) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found findings
	for i := range o.Claims {
		claim := &o.Claims[i]
		server, exists := o.ServerOf(claim)
		switch {
		case !claim.DeletionTimestamp.IsZero():
			found.add("NodeClaim %s is being deleted", claim.Name)
		case !exists:
			found.add("NodeClaim %s has no server: %s", claim.Name, claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).Message)
		case server.Status != cloud.StatusActive:
			found.add("server %s of NodeClaim %s is %s", server.Name, claim.Name, server.Status)
		case !claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue():
			found.add("NodeClaim %s is not registered", claim.Name)
		}
	}
	c.leftovers(o, &found)
	slices.Sort(found)
	return found
}

func (c *Checker) leftovers(o Observation, found *findings) {
	claimed := lo.SliceToMap(o.Claims, func(claim karpv1.NodeClaim) (string, bool) { return claim.Status.ProviderID, true })
	owners := map[string]bool{}
	for _, s := range o.Cloud.Servers {
		owners[s.ID] = claimed[providerid.New(s.ID)] || lo.HasKey(c.servers, s.ID)
		if !owners[s.ID] {
			found.add("server %s (%s) has no NodeClaim", s.Name, s.Status)
		}
	}
	for _, node := range o.Nodes {
		if !claimed[node.Spec.ProviderID] {
			found.add("Node %s has no NodeClaim", node.Name)
		}
	}
	for _, v := range o.Cloud.Volumes {
		attached := lo.SomeBy(v.Attachments, func(a cloud.VolumeAttachment) bool { return owners[a.ServerID] })
		if !attached && !lo.HasKey(c.volumes, v.ID) {
			found.add("disk %s is left (%s)", v.Name, v.Status)
		}
	}
	for _, nic := range o.Cloud.NetworkInterfaces {
		if !owners[nic.DeviceID] {
			found.add("network interface %s is left", nic.Name)
		}
	}
	for _, ip := range o.Cloud.WanIPs {
		if !owners[ip.DeviceID] {
			found.add("address %s is left", ip.IPAddress)
		}
	}
}
