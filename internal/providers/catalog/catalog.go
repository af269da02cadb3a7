/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package catalog keeps the last good answer to "what does the cloud offer": regions, flavors, categories, volume types,
// Kubernetes versions and our own BKE cluster, raw as the API gave them, with a sequence number that changes when the
// content does. Everything above decides from a snapshot and never waits for the cloud.
package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/bizflycloud/gobizfly"
)

// ErrNotReady is returned until the catalog was read for the first time.
var ErrNotReady = errors.New("the catalog of the cloud has not been read yet")

// Snapshot is one consistent answer. It is shared and immutable: nobody changes it or anything that it points to.
type Snapshot struct {
	// Seq is raised whenever the content differs from the snapshot before; 1 is the first.
	Seq uint64
	// FetchedAt is when the last successful read of everything ended, even when it changed nothing.
	FetchedAt time.Time
	// Region is the configured region with its zones.
	Region gobizfly.Region
	// Flavors are all flavors, also those that are not for us, sorted by name and then by id.
	Flavors []*gobizfly.ServerFlavorResponse
	// ServerTypes are the categories in which servers are sold.
	ServerTypes []*gobizfly.ServerType
	// VolumeTypes are the volume types with their category and zones.
	VolumeTypes []*gobizfly.VolumeType
	// KubernetesVersions are BKE's versions with their worker images; empty without BKE.
	KubernetesVersions []gobizfly.ControllerVersion
	// Cluster is our own BKE cluster, without its worker pools and statistics, which change all the time; nil without BKE.
	Cluster *gobizfly.FullCluster
	// ClusterUnknown is true while there may be a BKE cluster of ours whose id could not be learned yet. Then that Cluster is
	// nil says nothing: what would be chosen without BKE must not be chosen.
	ClusterUnknown bool
	// MaxNodes is how many nodes the package of our BKE cluster allows; 0 without BKE and where it does not say.
	MaxNodes int
}

// Provider serves the snapshot.
type Provider interface {
	// Snapshot returns the last good snapshot, or ErrNotReady. It never calls the cloud.
	Snapshot() (*Snapshot, error)
	// Refresh reads everything anew. A part that cannot be read keeps its last good content, and the error says which;
	// a part that was never read leaves the catalog not ready.
	Refresh(ctx context.Context) error
}
