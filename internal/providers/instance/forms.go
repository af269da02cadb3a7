// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// The forms in which public clients of the cloud send what its API does not document, most likely first. See the hedge
// register, docs/contribute/first-contact.md.
const (
	// fieldVolumeType is how a disk names its type: by the name or the type of GET /volume-types, or by the medium
	// (SSD, HDD) alone.
	fieldVolumeType = "volumeType"
	// fieldFlavor precedes the family of an old flavor: nix.2c_4g or 2c_4g, 2c_4g_basic or 2c_4g. New generations have
	// one name.
	fieldFlavor = "flavor."

	formName, formType, formMedium = "Name", "Type", "Medium"
	formFull, formShort            = "Full", "Short"
)

var (
	volumeTypeForms = []string{formName, formType, formMedium}
	flavorForms     = []string{formFull, formShort}
)

// formsOf returns the forms of a field, and none of an unknown one.
func formsOf(field string) []string {
	switch {
	case field == fieldVolumeType:
		return volumeTypeForms
	case strings.HasPrefix(field, fieldFlavor):
		return flavorForms
	}
	return nil
}

// Forms decide in which form create requests send each such field, and remember which one the cloud has built a server
// for. A form that was accepted is final. Until then each rejection moves on to the next one of a list.
type Forms struct {
	mu sync.Mutex
	// accepted are the forms that the cloud takes, by field.
	accepted map[string]string
	// positions are how far the lists were tried that have no accepted form.
	positions map[place]position
}

// place is what a position counts for: a NodeClass (capacity.NodeClassKey), a zone, and a family of old flavors, empty
// for flavors of generations. Others need not meet the same rejections, since the NodeClass or the zone may be what is
// wrong.
type place struct{ nodeClass, zone, family string }

// position is where a list of spellings goes on.
type position struct {
	next int
	// named is whether the last rejection named the flavor.
	named bool
	// doubtful is true once a name of an old flavor was rejected: flavors are doubted whose family has not been
	// launched by either name.
	doubtful bool
	// until is how long this is remembered.
	until time.Time
}

// spelling is the form of each field in one create request.
type spelling struct {
	volumeType string
	// flavorField is empty for a flavor that has one name.
	flavorField, flavor string
}

// formFor returns the spelling of a create request of the flavor.
func (f *Forms) formFor(flavor string, in place) spelling {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.spellings(flavor)
	return all[f.positions[in].next%len(all)]
}

// spellings are all that the cloud may take for the flavor: each name with the most likely form of the volume type, and
// so on; the caller holds the lock.
func (f *Forms) spellings(flavor string) (all []spelling) {
	field, names := "", []string{""}
	if _, family := shortName(flavor); family != "" {
		field = fieldFlavor + family
		names = f.possible(field)
	}
	for _, volumeType := range f.possible(fieldVolumeType) {
		for _, name := range names {
			all = append(all, spelling{volumeType: volumeType, flavorField: field, flavor: name})
		}
	}
	return all
}

func (f *Forms) possible(field string) []string {
	if accepted, ok := f.accepted[field]; ok {
		return []string{accepted}
	}
	return formsOf(field)
}

// forms are the forms by field.
func (s spelling) forms() map[string]string {
	return lo.OmitByKeys(map[string]string{fieldVolumeType: s.volumeType, s.flavorField: s.flavor}, []string{""})
}

// moveOn remembers that the spelling was rejected, and reports whether there is another one that is worth a create
// request. Where there is none, the next launch begins anew.
func (f *Forms) moveOn(sent spelling, flavor string, in place, err error, now time.Time) bool {
	if !bizfly.MayBeForm(err) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all, before := f.spellings(flavor), f.positions[in]
	next := before.next%len(all) + 1
	if all[next-1] != sent {
		return true // another launch has moved on meanwhile
	}
	twoNames := len(f.possible(sent.flavorField)) > 1
	named := bizfly.NamesOffering(err) && !bizfly.NamesVolumeType(err)
	// A flavor that is named may have another name. Where both were rejected so, or it has one, the form is not to blame.
	more := next < len(all) && (!named || twoNames && !before.named)
	f.positions = lo.PickBy(f.positions, func(_ place, other position) bool { return now.Before(other.until) })
	f.positions[in] = position{next: lo.Ternary(more, next, 0), named: more && named,
		doubtful: before.doubtful || twoNames && !bizfly.NamesVolumeType(err), until: now.Add(ttl.OfferingFailures)}
	return more
}

// isDoubted reports whether the flavor has two names, of which none has been accepted for its family, while such a name
// was rejected for the NodeClass in any zone not long ago: the flavor may be closed, or called by the other name.
// Flavors of a generation have one name.
func (f *Forms) isDoubted(flavor, nodeClass string, now time.Time) bool {
	_, family := shortName(flavor)
	if family == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted[fieldFlavor+family] == "" && lo.SomeBy(lo.Entries(f.positions), func(known lo.Entry[place,
		position]) bool {
		return known.Key.nodeClass == nodeClass && known.Value.doubtful && now.Before(known.Value.until)
	})
}

// Accepted returns the forms that the cloud takes, by field.
func (f *Forms) Accepted() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.accepted)
}

// Restore remembers forms that the cloud has taken before. What is known already stays, and what is no form is ignored.
func (f *Forms) Restore(accepted map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for field, form := range accepted {
		if _, known := f.accepted[field]; !known && slices.Contains(formsOf(field), form) {
			f.accepted = lo.Assign(f.accepted, map[string]string{field: form})
		}
	}
}

// flavorName returns the name to request the flavor by.
func (s spelling) flavorName(flavor string) string {
	if s.flavor == formShort {
		flavor, _ = shortName(flavor)
	}
	return flavor
}

// disk returns a disk of a create request.
func (s spelling) disk(snapshot *catalog.Snapshot, category string, disk catalog.Disk) *gobizfly.ServerDisk {
	named, _ := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool {
		return t.Name == disk.VolumeType && strings.EqualFold(t.Category, category)
	})
	medium, known := catalog.Medium(lo.CoalesceOrEmpty(named, &gobizfly.VolumeType{Name: disk.VolumeType}))
	switch {
	case s.volumeType == formMedium && known:
		return &gobizfly.ServerDisk{Size: disk.GiB, Type: lo.ToPtr(string(medium))}
	case s.volumeType == formType && named != nil && named.Type != "":
		return &gobizfly.ServerDisk{Size: disk.GiB, VolumeType: &named.Type}
	}
	return &gobizfly.ServerDisk{Size: disk.GiB, VolumeType: &disk.VolumeType}
}

// shortName returns the name of a flavor of an old family without its category, and the family; both as they are, and
// empty, for any other flavor.
func shortName(flavor string) (short, family string) {
	if short, ok := strings.CutPrefix(flavor, "nix."); ok {
		return short, "nix"
	}
	for _, category := range []string{"basic", "enterprise", "dedicated"} {
		if short, ok := strings.CutSuffix(flavor, "_"+category); ok {
			return short, category
		}
	}
	return flavor, ""
}
