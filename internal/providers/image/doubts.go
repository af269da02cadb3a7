// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// confirmations is how many reads in a row must agree before the image that a NodeClass has resolved to is lost, or
	// replaced by what is not newer: lists lack an image for a moment, and a fleet that follows is replaced twice.
	confirmations = 3
	// maxDoubts bounds what is remembered; NodeClasses that are deleted meanwhile leave some behind.
	maxDoubts = 1024
)

// doubts count the reads that would take from a NodeClass the image that it has resolved to. The zero value counts from
// none.
type doubts struct {
	mu          sync.Mutex
	byNodeClass map[string]doubt
}

// doubt is what is remembered of one NodeClass.
type doubt struct {
	// image is what was found last for these terms. After an edit of anything else it is in use for the new spec too.
	image, terms string
	instead      string // what would be taken; empty for nothing
	read         string // which lists said so last
	reads        int
}

// confirm returns the error of a resolution, nil or a NotFoundError, when what it found is to be taken: the NodeClass
// uses it already, or nothing for these terms, or it is newer, or enough reads agree. Otherwise its error, which is no
// NotFoundError, says that what is used stays in use. A resolution that could not find it out shows nothing.
func (d *doubts) confirm(nodeClass *v1alpha1.BizflyNodeClass, found string, newer bool, reads lookup.Reads,
	err error) error {
	if err != nil && !lookup.IsNotFound(err) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key, used := string(nodeClass.UID)+"/"+nodeClass.Name, nodeClass.Status.ImageID()
	text, _ := json.Marshal(nodeClass.Spec.ImageSelectorTerms) // strings always marshal
	known, terms := d.byNodeClass[key], string(text)
	resolved := v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeImagesReady) ||
		used != "" && known.image == used && known.terms == terms
	if used == found || newer || !resolved {
		d.remember(key, doubt{image: found, terms: terms})
		return err
	}
	switch read := fmt.Sprint(reads); {
	case known.reads == 0 || known.image != used || known.instead != found:
		known = doubt{image: used, terms: terms, instead: found, read: read, reads: 1}
	case known.read != read:
		known.read, known.reads = read, known.reads+1
	}
	if known.reads >= confirmations {
		d.remember(key, doubt{image: found, terms: terms})
		return err
	}
	d.remember(key, known)
	return fmt.Errorf("%s: %s was found before and %s now; it stays in use until %d reads in a row agree (%d so far)",
		v1alpha1.ConditionTypeImagesReady, lo.CoalesceOrEmpty(used, "nothing"), lo.CoalesceOrEmpty(found, "nothing"),
		confirmations, known.reads)
}

// remember replaces what is remembered of a NodeClass; the caller holds the lock.
func (d *doubts) remember(key string, known doubt) {
	if _, exists := d.byNodeClass[key]; d.byNodeClass == nil || !exists && len(d.byNodeClass) >= maxDoubts {
		d.byNodeClass = map[string]doubt{}
	}
	d.byNodeClass[key] = known
}
