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

package instance

import (
	"slices"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// maxRecords bounds the tracker. What does not fit is deleted all the same, but not continued by ReconcileDeletions.
	maxRecords = 20_000
	// byID and byName keep ids and names apart in the keys.
	byID   = "id/"
	byName = "name/"
)

// record is what is remembered of one deletion. Nothing depends on it for safety: a controller that starts anew finds
// out the same from the cloud and from the NodeClaim, with a few calls more.
type record struct {
	// ID is the server's id; empty where only what it left is known, by its name.
	ID string
	// Name is the server's name, and proven to be.
	Name string
	// Found is true where nothing but the names of its leftovers is known of the server.
	Found bool
	// NotBefore is when the record is next reconciled: what has no server may still be of a launch that is waited for, and
	// what could not be removed is tried again later and later.
	NotBefore time.Time
	// Recorded are the disks that the NodeClaim has on record.
	Recorded []string
	// Addresses are the network interfaces that the NodeClaim has on record, and Attached those that this process has seen
	// attached to the server.
	Addresses []string
	Attached  []string
	// Requested are the disks that a request has listed to delete with the server.
	Requested []string
	// RetryAt is when the request to delete a server that is still there is sent again; zero while none was sent.
	RetryAt time.Time
	// Late is true once it was reported that the server is still there.
	Late bool
	// GoneSince is when the server was proved to be gone; zero while it was not.
	GoneSince time.Time
	// Released is true once the NodeClaim no longer waits for what the server left, and Failures counts the tries since.
	Released bool
	Failures int
	// Left is true when BKE has been left, and LeavingUntil is until when one request to leave it is waited for.
	Left         bool
	LeavingUntil time.Time
	// Done is true when everything is gone.
	Done bool
	// Begun is when the deletion was first requested from this process.
	Begun time.Time
	// Reason and Description identify the server in the removal log line.
	Reason      string
	Description Description
}

// settled reports whether the NodeClaim of the server may end.
func (r record) settled() bool { return r.Done || r.Released }

func (r record) key() string { return lo.Ternary(r.ID != "", byID+r.ID, byName+r.Name) }

// tracker remembers the deletions under way in a cache whose entries expire.
type tracker struct {
	// mu makes a change of one record atomic; it is never held across a call.
	mu    sync.Mutex
	cache *cache.Cache
}

// known returns the record of a server, by its id or else its name; an empty one where there is none.
func (t *tracker) known(server record) record {
	if found, ok := t.cache.Get(server.key()); ok {
		return found.(record)
	}
	return record{ID: server.ID, Name: lo.Ternary(server.ID == "", server.Name, "")}
}

// change applies a function to the record of a server, by its id or else its name, and returns a copy of the result.
func (t *tracker) change(server record, apply func(*record)) record {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, current := server.key(), t.known(server)
	apply(&current)
	if _, exists := t.cache.Get(key); exists || t.cache.ItemCount() < maxRecords {
		t.cache.Set(key, current, lo.Ternary(current.Done, ttl.DoneDeletion, cache.DefaultExpiration))
	}
	return current
}

// forget drops the record of a server that turned out not to be ours.
func (t *tracker) forget(id string) {
	t.cache.Delete(byID + id)
}

// expect remembers the name of a launch that may have left disks or addresses, or may yet, and from when on they are no
// longer waited for.
func (t *tracker) expect(name string, notBefore time.Time) {
	if t.cache.ItemCount() < maxRecords {
		t.cache.SetDefault(byName+name, record{Name: name, NotBefore: notBefore})
	}
}

// found remembers a name that only a disk or an address in the cloud proves, unless it is remembered already.
func (t *tracker) found(name string, notBefore time.Time) {
	if _, known := t.cache.Get(byName + name); !known && t.cache.ItemCount() < maxRecords {
		t.cache.SetDefault(byName+name, record{Name: name, NotBefore: notBefore, Found: true})
	}
}

// arrived forgets a launch whose server has come.
func (t *tracker) arrived(name string) {
	t.cache.Delete(byName + name)
}

// open returns all records that are not done, sorted so that every pass treats them in the same order.
func (t *tracker) open() []record {
	items := lo.PickBy(t.cache.Items(), func(_ string, item cache.Item) bool { return !item.Object.(record).Done })
	keys := lo.Keys(items)
	slices.Sort(keys)
	return lo.Map(keys, func(key string, _ int) record { return items[key].Object.(record) })
}

// merge adds to a record what a caller knows.
func (r *record) merge(request DeleteRequest) {
	r.Recorded = lo.Union(r.Recorded, request.RecordedVolumes)
	r.Addresses = lo.Union(r.Addresses, request.RecordedAddresses)
	r.Reason = lo.CoalesceOrEmpty(r.Reason, request.Reason)
	r.Description = r.Description.or(request.Description)
}
