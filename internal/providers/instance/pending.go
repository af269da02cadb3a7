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
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxPending bounds the durable record: about 300 KiB, far below what an object may hold, and twice a thousand
	// launches at once.
	maxPending = 2000
	// pendingFor is how long what a server may have left behind is looked for at least, since requests and builds that
	// are long given up may still have an effect.
	pendingFor = time.Hour
	// pendingTimeout bounds one write of the durable record, which may serve many launches.
	pendingTimeout = 15 * time.Second
)

// PendingStore is the durable record of the servers that no claim accounts for yet, or any more. Without it the name of a
// server is known only to a claim that goes, and to a process that dies: the root disk that such a server leaves behind
// could never be told to be ours. *config.PendingServers is one.
type PendingStore interface {
	// Read returns the record by the servers' names, as the API server has it.
	Read(ctx context.Context) (map[string]v1alpha1.PendingServer, error)
	// Write changes entries, each by itself; nil removes one.
	Write(ctx context.Context, changes map[string]*v1alpha1.PendingServer) error
}

// pending is the PendingStore as the launches of one process share it: what is written at the same moment is one write.
type pending struct {
	store      PendingStore
	clusterUID string

	mu sync.Mutex
	// known is the record as far as this process knows, and version counts its changes.
	known   map[string]v1alpha1.PendingServer
	version int
	loaded  bool
	// waiting is what the next write will change.
	waiting map[string]*v1alpha1.PendingServer
	// current is the write under way; next begins when it has ended.
	current, next *pendingWrite
}

// pendingWrite is one write with those who wait for it.
type pendingWrite struct {
	done chan struct{}
	err  error
}

func newPending(store PendingStore, clusterUID string) *pending {
	return &pending{store: store, clusterUID: clusterUID, known: map[string]v1alpha1.PendingServer{}, waiting: map[string]*v1alpha1.PendingServer{}}
}

// add writes a server down and returns when that is done.
func (l *pending) add(ctx context.Context, name, nodeClaimUID string, now time.Time) error {
	if l.store == nil {
		return nil
	}
	if err := l.load(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	known, exists := l.known[name]
	if exists && known.NodeClaimUID == nodeClaimUID {
		if change, queued := l.waiting[name]; queued && change == nil {
			delete(l.waiting, name)
		}
		l.mu.Unlock()
		return nil
	}
	if !exists && len(l.known)+len(l.waiting) >= maxPending {
		l.mu.Unlock()
		log.FromContext(ctx).Info("too many servers are on record: what this one leaves behind is forgotten if the controller stops", "server", name, "limit", maxPending)
		return nil
	}
	l.waiting[name] = &v1alpha1.PendingServer{ClusterUID: l.clusterUID, NodeClaimUID: nodeClaimUID, Since: metav1.NewTime(now)}
	w := l.join(ctx)
	l.mu.Unlock()
	return w.wait(ctx)
}

// handed writes down that whoever ordered the server was told its id. Nobody waits for that: what is not written is
// written with the next change.
func (l *pending) handed(ctx context.Context, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[name]; ok && !known.Handed {
		known.Handed = true
		l.known[name] = known
		l.waiting[name] = &known
		l.join(ctx)
	}
}

// forget drops a server with the next write: nothing of it can be left, or its claim accounts for it.
func (l *pending) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[name]; ok {
		l.waiting[name] = nil
	}
}

// since is when the server was written down; zero where it is not on record.
func (l *pending) since(name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[name].Since.Time
}

// flush writes what was not urgent, and waits for what is being written.
func (l *pending) flush(ctx context.Context) error {
	l.mu.Lock()
	w := l.current
	if len(l.waiting) > 0 {
		w = l.join(ctx)
	}
	l.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.wait(ctx)
}

// join returns the write that has not begun yet; it is called with the lock held.
func (l *pending) join(ctx context.Context) *pendingWrite {
	if l.current == nil {
		l.current = &pendingWrite{done: make(chan struct{})}
		l.begin(ctx, l.current)
		return l.current
	}
	if l.next == nil {
		l.next = &pendingWrite{done: make(chan struct{})}
	}
	return l.next
}

func (w *pendingWrite) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin is called with the lock held and writes without it. The write outlives the caller that began it, because others
// wait for it too.
func (l *pending) begin(ctx context.Context, w *pendingWrite) {
	changes := l.waiting
	l.waiting = map[string]*v1alpha1.PendingServer{}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pendingTimeout)
		w.err = l.store.Write(ctx, changes)
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.settle(changes, w.err)
		close(w.done)
		l.current, l.next = l.next, nil
		if l.current != nil {
			l.begin(ctx, l.current)
		}
	}()
}

// settle takes over what was written. What failed is forgotten where somebody was told so, and repeated where nobody was.
func (l *pending) settle(changes map[string]*v1alpha1.PendingServer, err error) {
	l.version++
	for name, change := range changes {
		known, exists := l.known[name]
		_, superseded := l.waiting[name]
		switch {
		case err == nil && change == nil:
			delete(l.known, name)
		case err == nil && (!exists || !known.Handed):
			l.known[name] = *change
		case err != nil && exists && !superseded:
			l.waiting[name] = change
		}
	}
}

// load reads the record before it is first changed, so that its bound holds across restarts.
func (l *pending) load(ctx context.Context) error {
	l.mu.Lock()
	loaded := l.loaded
	l.mu.Unlock()
	if loaded {
		return nil
	}
	_, err := l.read(ctx)
	return err
}

// read returns this cluster's entries of the record.
func (l *pending) read(ctx context.Context) (map[string]v1alpha1.PendingServer, error) {
	if l.store == nil {
		return nil, nil
	}
	l.mu.Lock()
	version := l.version
	l.mu.Unlock()
	written, err := l.store.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which servers are pending: %w", err)
	}
	written = lo.PickBy(written, func(_ string, entry v1alpha1.PendingServer) bool { return entry.ClusterUID == l.clusterUID })
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.known
	if l.version == version && l.current == nil {
		l.known = map[string]v1alpha1.PendingServer{}
	}
	for name, entry := range written {
		entry.Handed = entry.Handed || before[name].Handed
		l.known[name], written[name] = entry, entry
	}
	l.loaded = true
	return written, nil
}

// Abandoned returns the UIDs of the claims for which servers were ordered that nobody was ever told of, as it is on
// record now. It is how a controller that starts anew knows that these servers are expected to have no claim.
func (p *DefaultProvider) Abandoned(ctx context.Context) (sets.Set[string], error) {
	entries, err := p.pending.read(ctx)
	uids := sets.New[string]()
	for _, entry := range entries {
		if !entry.Handed {
			uids.Insert(entry.NodeClaimUID)
		}
	}
	return uids, err
}
