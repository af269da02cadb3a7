// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// confirmations is how many reads in a row must agree before what a NodeClass has resolved to is lost, or replaced by
	// what is not newer: lists lack an object for a moment, and a fleet that follows is replaced twice.
	confirmations = 3
	// readGap is how far apart two reads of one list are at least that count as two.
	readGap = 15 * time.Second
	// maxDoubts bounds what is counted; NodeClasses that are deleted meanwhile leave some behind.
	maxDoubts = 1024
)

// Reads are the times of the reads that one resolution decided by, by what was read.
type Reads map[string]time.Time

// Doubts counts the reads that would take from a NodeClass what it has resolved to. The zero value counts from none.
type Doubts struct {
	mu sync.Mutex
	// seen is by NodeClass, condition and what is used.
	seen map[string]doubt
}

type doubt struct {
	instead string // what would be taken; empty for nothing
	read    string // which lists said so last
	reads   int
}

// Confirm returns the error of a resolution, nil or a NotFoundError, when what it found is to be taken: the NodeClass
// uses it already, or nothing for this spec, or it is newer, or enough reads agree. Otherwise its error, which is no
// NotFoundError, says that what is used stays in use. A resolution that could not find it out shows nothing. The
// condition is that of what was found, for which the NodeClass used something.
func (d *Doubts) Confirm(nodeClass *v1alpha1.BizflyNodeClass, condition, used, found string, newer bool, reads Reads,
	err error) error {
	if err != nil && !IsNotFound(err) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join([]string{string(nodeClass.UID), nodeClass.Name, condition, used}, "/")
	if used == found || newer || !v1alpha1.Resolved(nodeClass, condition) {
		delete(d.seen, key)
		return err
	}
	seen, read := d.seen[key], fmt.Sprint(reads)
	switch {
	case seen.reads == 0 || seen.instead != found:
		seen = doubt{instead: found, read: read, reads: 1}
	case seen.read != read:
		seen.read, seen.reads = read, seen.reads+1
	}
	if seen.reads >= confirmations {
		delete(d.seen, key)
		return err
	}
	if d.seen == nil || len(d.seen) >= maxDoubts {
		d.seen = map[string]doubt{}
	}
	d.seen[key] = seen
	return fmt.Errorf("%s: %s was found before and %s now; it stays in use until %d reads in a row agree (%d so far)",
		condition, lo.CoalesceOrEmpty(used, "nothing"), lo.CoalesceOrEmpty(found, "nothing"), confirmations, seen.reads)
}
