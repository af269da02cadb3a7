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
)

const (
	// maxRecords bounds the tracker. What does not fit is deleted all the same, only not followed to its end by Reap.
	maxRecords = 20_000
	// doneFor is how long a finished deletion is remembered: core asks again from two controllers.
	doneFor = 10 * time.Minute
	// byID and byName keep ids and names apart in the keys.
	byID   = "id/"
	byName = "name/"
)

// record is what we remember of one deletion. Nothing depends on it for safety: a controller that starts anew finds
// out the same from the cloud and from the claim, with a few calls more.
type record struct {
	// ID is the server's id; empty where only what it left is known, by its name.
	ID string
	// Name is the server's name, and proven to be.
	Name string
	// Found is true where nothing but the names of its leftovers is known of the server.
	Found bool
	// NotBefore is when the record is next looked at: what has no server may still be of a launch that is waited for, and
	// what could not be removed is tried again later and later.
	NotBefore time.Time
	// Recorded are the disks that the claim has on record.
	Recorded []string
	// Addresses are the network interfaces that the claim has on record, and Attached those that this process has seen
	// attached to the server.
	Addresses []string
	Attached  []string
	// Asked are the disks that the cloud was told to delete with the server.
	Asked []string
	// AskAgain is when the cloud is told again to delete a server that is still there; zero while it was not told.
	AskAgain time.Time
	// Late is true once it was reported that the server is still there.
	Late bool
	// GoneSince is when the server was first found gone.
	GoneSince time.Time
	// Released is true once the NodeClaim no longer waits for what the server left, and Failures counts the tries since.
	Released bool
	Failures int
	// Left is true when BKE has been left.
	Left bool
	// Done is true when everything is gone.
	Done bool
	// Begun is when the deletion was first asked for.
	Begun time.Time
	// Reason and Description identify the server in the removal log line.
	Reason      string
	Description Description
}

func (r *record) key() string { return lo.Ternary(r.ID != "", byID+r.ID, byName+r.Name) }

// tracker remembers the deletions under way in a cache whose entries expire.
type tracker struct {
	// mu makes a change of one record atomic; it is never held across a call.
	mu    sync.Mutex
	cache *cache.Cache
}

// known returns the record of a server, by its id or else its name; an empty one where there is none.
func (l *tracker) known(server record) record {
	if found, ok := l.cache.Get(server.key()); ok {
		return found.(record)
	}
	return record{ID: server.ID, Name: lo.Ternary(server.ID == "", server.Name, "")}
}

// change applies a function to the record of a server, by its id or else its name, and returns a copy of the result.
func (l *tracker) change(server record, apply func(*record)) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, current := server.key(), l.known(server)
	apply(&current)
	if _, exists := l.cache.Get(key); exists || l.cache.ItemCount() < maxRecords {
		l.cache.Set(key, current, lo.Ternary(current.Done, doneFor, cache.DefaultExpiration))
	}
	return current
}

// forget drops the record of a server that turned out not to be ours.
func (l *tracker) forget(id string) {
	l.cache.Delete(byID + id)
}

// expect remembers the name of a launch that may have left disks or addresses, or may yet, and from when on they are no
// longer waited for.
func (l *tracker) expect(name string, notBefore time.Time) {
	if l.cache.ItemCount() < maxRecords {
		l.cache.SetDefault(byName+name, record{Name: name, NotBefore: notBefore})
	}
}

// found remembers a name that only something in the cloud bears witness of, unless it is remembered already.
func (l *tracker) found(name string, notBefore time.Time) {
	if _, known := l.cache.Get(byName + name); !known && l.cache.ItemCount() < maxRecords {
		l.cache.SetDefault(byName+name, record{Name: name, NotBefore: notBefore, Found: true})
	}
}

// arrived forgets a launch whose server has come.
func (l *tracker) arrived(name string) {
	l.cache.Delete(byName + name)
}

// open returns all records that are not done, sorted so that every pass treats them in the same order.
func (l *tracker) open() []record {
	items := lo.PickBy(l.cache.Items(), func(_ string, item cache.Item) bool { return !item.Object.(record).Done })
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
