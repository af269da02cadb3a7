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
	// maxRecords bounds the ledger. What does not fit is deleted all the same, only not followed to its end by Reap.
	maxRecords = 20_000
	// doneFor is how long a finished deletion is remembered: core asks again from two controllers.
	doneFor = 10 * time.Minute
	// serverPrefix and namePrefix keep ids and names apart in the keys.
	serverPrefix = "id/"
	namePrefix   = "name/"
)

// record is what we remember of one deletion. Nothing depends on it for safety: a controller that starts anew finds
// out the same from the cloud and from the claim, with a few calls more.
type record struct {
	// ID is the server's id; empty where only a disk is expected.
	ID string
	// Name is the server's name.
	Name string
	// NotBefore is until when a disk without a server may still be an order that somebody waits for.
	NotBefore time.Time
	// Recorded are the disks that the claim has on record.
	Recorded []string
	// Addresses are the network interfaces that the claim has on record.
	Addresses []string
	// ReleaseFailures counts how often addresses could not be released.
	ReleaseFailures int
	// Asked are the disks that the cloud was told to delete with the server.
	Asked []string
	// AskAgain is when the cloud is told again to delete a server that is still there; zero while it was not told.
	AskAgain time.Time
	// LeaveFailures counts how often BKE could not be left.
	LeaveFailures int
	// Left is true when BKE has been left or nobody tries any more.
	Left bool
	// Done is true when everything is gone.
	Done bool
	// Begun is when the deletion was first asked for.
	Begun time.Time
	// Reason and Description are what its end is told with.
	Reason      string
	Description Description
}

// ledger remembers the deletions under way in a cache whose entries expire.
type ledger struct {
	// mu makes a change of one record whole; it is never held across a call.
	mu    sync.Mutex
	cache *cache.Cache
}

// change applies a function to the record of a server and returns a copy of the result.
func (l *ledger) change(id string, apply func(*record)) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := record{ID: id}
	if found, ok := l.cache.Get(serverPrefix + id); ok {
		current = found.(record)
	}
	apply(&current)
	if _, exists := l.cache.Get(serverPrefix + id); exists || l.cache.ItemCount() < maxRecords {
		l.cache.Set(serverPrefix+id, current, lo.Ternary(current.Done, doneFor, cache.DefaultExpiration))
	}
	return current
}

// forget drops the record of a server that turned out not to be ours.
func (l *ledger) forget(id string) {
	l.cache.Delete(serverPrefix + id)
}

// expect remembers the name of an order of which a root disk may be left or yet come, and from when on such a disk is
// nobody's.
func (l *ledger) expect(name string, notBefore time.Time) {
	if l.cache.ItemCount() < maxRecords {
		l.cache.SetDefault(namePrefix+name, record{Name: name, NotBefore: notBefore})
	}
}

// follow remembers the name of an order like expect, unless it is remembered already.
func (l *ledger) follow(name string, notBefore time.Time) {
	if _, known := l.cache.Get(namePrefix + name); !known {
		l.expect(name, notBefore)
	}
}

// arrived forgets an order whose server has come.
func (l *ledger) arrived(name string) {
	l.cache.Delete(namePrefix + name)
}

// open returns all records that are not done, sorted so that every pass treats them in the same order.
func (l *ledger) open() []record {
	items := lo.PickBy(l.cache.Items(), func(_ string, item cache.Item) bool { return !item.Object.(record).Done })
	keys := lo.Keys(items)
	slices.Sort(keys)
	return lo.Map(keys, func(key string, _ int) record { return items[key].Object.(record) })
}

// merge adds to a record what a caller knows.
func (r *record) merge(request DeleteRequest) {
	r.Name = lo.CoalesceOrEmpty(r.Name, request.Name)
	r.Recorded = lo.Union(r.Recorded, request.RecordedVolumes)
	r.Addresses = lo.Union(r.Addresses, request.RecordedAddresses)
	r.Reason = lo.CoalesceOrEmpty(r.Reason, request.Reason)
	r.Description = r.Description.or(request.Description)
}
