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

package chaos_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// belongings are what nobody may touch: other people's servers, and volumes that no server of ours was ordered with.
type belongings struct {
	mu      sync.Mutex
	servers []cloud.Server
	volumes map[string]owned // by id
}

// owned is a volume of somebody else, and since when it is.
type owned struct {
	name  string
	since time.Time
}

// newBelongings makes the servers of strangers: of another cluster that has the same name, and of a person.
func newBelongings() *belongings {
	GinkgoHelper()
	b := &belongings{volumes: map[string]owned{}}
	for _, spec := range []cloud.ServerSpec{
		{Name: "default-x7k2p-0a1b2c3d", Zone: "HN1", Wan: true, Metadata: map[string]string{
			v1alpha1.MetadataClusterUID: "another-cluster", v1alpha1.MetadataNodeClaimUID: "claim-of-another-cluster",
			v1alpha1.MetadataClusterName: "sandbox", v1alpha1.MetadataNodePool: "default",
		}},
		{Name: "default-without-uid", Zone: "HN2", Metadata: map[string]string{
			v1alpha1.MetadataClusterName: "sandbox", v1alpha1.MetadataNodePool: "default",
		}},
		{Name: "database", Zone: "HN1", Wan: true},
	} {
		var made cloud.Server
		Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &made)).To(Succeed())
		b.servers = append(b.servers, made)
	}
	return b
}

// addVolume makes a volume and attaches it to a server.
func (b *belongings) addVolume(spec cloud.VolumeSpec, serverID string) cloud.Volume {
	GinkgoHelper()
	var made cloud.Volume
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "volumes", spec, &made)).To(Succeed())
	b.mu.Lock()
	b.volumes[made.ID] = owned{name: made.Name, since: time.Now()}
	b.mu.Unlock()
	return made
}

func attach(volume cloud.Volume, server cloud.Server) {
	GinkgoHelper()
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "volumes/"+volume.ID+"/attach", map[string]string{"server_id": server.ID}, nil)).To(Succeed())
}

// touched says what has become of them that should not.
func (b *belongings) touched(seen *sight) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	servers := lo.KeyBy(seen.state.Servers, func(s cloud.Server) string { return s.ID })
	for _, before := range b.servers {
		now, exists := servers[before.ID]
		if !exists || now.Status != before.Status || now.Name != before.Name || now.Truth.Deleting || !maps.Equal(now.Metadata, before.Metadata) {
			found = append(found, fmt.Sprintf("server %s of somebody else was touched", before.Name))
		}
	}
	volumes := lo.KeyBy(seen.state.Volumes, func(v cloud.Volume) string { return v.ID })
	for id, volume := range b.volumes {
		if _, exists := volumes[id]; !exists && volume.since.Before(seen.at) {
			found = append(found, fmt.Sprintf("volume %s (%s), which belongs to a PersistentVolume or a person, is lost", id, volume.name))
		}
	}
	return found
}

func (b *belongings) hasServer(id string) bool {
	return lo.ContainsBy(b.servers, func(s cloud.Server) bool { return s.ID == id })
}

func (b *belongings) hasVolume(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.volumes[id]
	return known
}
