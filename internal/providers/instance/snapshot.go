// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// attachedTypeRoot is what the cloud calls the disk that a server boots from.
const attachedTypeRoot = "rootdisk"

// Snapshot is one list of the servers of this cluster, converted and indexed once for all of its readers: read only.
type Snapshot struct {
	servers     []*Instance
	byID        map[string]*Instance
	byNodeClaim map[string][]*Instance
}

// NewSnapshot indexes servers.
func NewSnapshot(servers []*Instance) *Snapshot {
	s := &Snapshot{servers: servers, byID: make(map[string]*Instance, len(servers)),
		byNodeClaim: make(map[string][]*Instance, len(servers))}
	for _, server := range servers {
		s.byID[server.ID] = server
		s.byNodeClaim[server.NodeClaimUID] = append(s.byNodeClaim[server.NodeClaimUID], server)
	}
	return s
}

// All returns all servers, failed and deleting ones included.
func (s *Snapshot) All() []*Instance { return s.servers }

// Get returns the server with this id; nil where there is none.
func (s *Snapshot) Get(id string) *Instance { return s.byID[id] }

// OfNodeClaim returns the servers that were launched for the NodeClaim with this UID.
func (s *Snapshot) OfNodeClaim(uid string) []*Instance { return s.byNodeClaim[uid] }

// hasNamed reports whether a server has this name or was launched under it, and is not only still listed.
func (s *Snapshot) hasNamed(name string) bool {
	return lo.ContainsBy(s.servers, func(server *Instance) bool {
		return name != "" && !server.Gone() && (server.Name == name || server.launchName == name)
	})
}

func (p *DefaultProvider) listServers(ctx context.Context) (*Snapshot, error) {
	if p.cluster.uid == "" {
		return nil, errNoClusterUID
	}
	servers, err := p.api.ListServers(ctx)
	if err != nil {
		return nil, err
	}
	return NewSnapshot(lo.FilterMap(servers, func(server *gobizfly.Server, _ int) (*Instance, bool) {
		if server.Metadata[v1alpha1.MetadataClusterUID] != p.cluster.uid {
			return nil, false
		}
		return p.cluster.convert(server), true
	})), nil
}

// recent is the time after which a list must have begun for readers that accept one of a few seconds ago.
func (p *DefaultProvider) recent() time.Time { return p.atMost(0) }

// atMost is the time after which a list must have begun to be at most this old, or a few seconds where that is longer.
func (p *DefaultProvider) atMost(maxAge time.Duration) time.Time {
	return p.clock.Now().Add(-max(maxAge, p.config.Settings.Load().ServerListMaxAge))
}

// getServer reads one server, of this cluster or not; ErrNotFound when the API denies its id.
func (p *DefaultProvider) getServer(ctx context.Context, id string) (*Instance, error) {
	if p.cluster.uid == "" {
		return nil, errNoClusterUID
	}
	server, err := p.api.GetServer(ctx, id)
	if bizfly.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", id, err)
	}
	return p.cluster.convert(server), nil
}

// convert returns the Instance of a server.
func (c cluster) convert(server *gobizfly.Server) *Instance {
	metadata := func(key string) string { return server.Metadata[key] }
	// A value that is no number was not written by us. It becomes 0, which no attempt has: they count from 1.
	attempt, _ := strconv.Atoi(metadata(v1alpha1.MetadataAttempt))
	dataDisks, _ := strconv.Atoi(metadata(v1alpha1.MetadataDataDisks))
	instance := &Instance{
		ID:           server.ID,
		Name:         server.Name,
		Status:       server.Status,
		Flavor:       lo.CoalesceOrEmpty(server.Flavor.Name, server.FlavorName),
		Zone:         lo.CoalesceOrEmpty(server.AvailabilityZone, server.ZoneName),
		BillingPlan:  lo.CoalesceOrEmpty(server.BillingPlan, server.Metadata["billing_plan"]),
		ImageID:      metadata(v1alpha1.MetadataImage),
		UserDataHash: metadata(v1alpha1.MetadataUserDataHash),
		DataDisks:    max(dataDisks, 0),
		ClusterUID:   metadata(v1alpha1.MetadataClusterUID),
		NodeClaim:    metadata(v1alpha1.MetadataNodeClaim),
		NodeClaimUID: metadata(v1alpha1.MetadataNodeClaimUID),
		NodePool:     metadata(v1alpha1.MetadataNodePool),
		NodeClass:    metadata(v1alpha1.MetadataNodeClass),
		Attempt:      attempt,
		CreatedAt:    bizfly.Time(server.CreatedAt),
		Volumes: lo.Map(server.AttachedVolumes, func(volume gobizfly.AttachedVolume, _ int) Volume {
			medium, _ := catalog.Medium(&gobizfly.VolumeType{Type: volume.Type})
			return Volume{
				ID: volume.ID, Name: volume.Name, SizeGiB: volume.Size, Medium: medium,
				Root: volume.AttachedType == attachedTypeRoot, attachedType: volume.AttachedType,
			}
		}),
	}
	if c.ours(instance) {
		instance.launchName = c.launchName(instance, metadata(v1alpha1.MetadataName))
		instance.NameProven = c.launchedAs(server.Name) != ""
	}
	return instance
}
