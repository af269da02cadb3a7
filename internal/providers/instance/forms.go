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

// The forms in which public clients of the cloud send what its API does not document, most likely first. See the hedge register,
// docs/contribute/first-contact.md.
const (
	// fieldVolumeType is how a disk names its type: by the name or the type of GET /volume-types, or by the medium (SSD, HDD) alone.
	fieldVolumeType = "volumeType"
	// fieldFlavor precedes the family of an old flavor: nix.2c_4g or 2c_4g, 2c_4g_basic or 2c_4g. New generations have one name.
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

// Forms decide in which form create requests send each such field, and remember which one the cloud has built a server for. A
// form that was accepted is final.
type Forms struct {
	mu sync.Mutex
	// volumeType is the form of volume types to send while none is accepted.
	volumeType int
	// accepted are the forms that the cloud takes, by field.
	accepted map[string]string
	// doubts are those of NodeClasses, by capacity.NodeClassKey.
	doubts map[string]doubt
}

// doubt is what a NodeClass has met: names of old flavors were rejected for it. Others need not meet the same, since the NodeClass may be
// what is wrong.
type doubt struct {
	// until is how long flavors are doubted whose family has not been launched by either name.
	until time.Time
	// tried is the form to send by field; the first one where it is absent.
	tried map[string]int
}

// spelling is the form of each field in one create request.
type spelling struct {
	volumeType string
	// flavorField is empty for a flavor that has one name.
	flavorField, flavor string
}

// of returns the spelling of a create request of the flavor for the NodeClass.
func (f *Forms) of(flavor, nodeClass string) spelling {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := spelling{volumeType: f.form(fieldVolumeType, f.volumeType)}
	if _, family := shortName(flavor); family != "" {
		s.flavorField = fieldFlavor + family
		s.flavor = f.form(s.flavorField, f.doubts[nodeClass].tried[s.flavorField])
	}
	return s
}

func (f *Forms) form(field string, tried int) string {
	if accepted, ok := f.accepted[field]; ok {
		return accepted
	}
	return formsOf(field)[tried]
}

// forms are the forms by field.
func (s spelling) forms() map[string]string {
	return lo.OmitByKeys(map[string]string{fieldVolumeType: s.volumeType, s.flavorField: s.flavor}, []string{""})
}

// reject changes the spelling that was rejected for the NodeClass, and reports whether there is another one that is worth a create request.
// A rejection that names no field may be about the flavor, which is then doubted.
func (f *Forms) reject(sent spelling, flavor, nodeClass string, err error, now time.Time) bool {
	if !bizfly.MayBeForm(err) {
		return false
	}
	if f.of(flavor, nodeClass) != sent {
		return true // another launch has changed it meanwhile
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bizfly.NamesVolumeType(err) {
		return f.next(fieldVolumeType, &f.volumeType)
	}
	if sent.flavorField == "" || f.accepted[sent.flavorField] != "" {
		return false
	}
	f.doubts = lo.PickBy(f.doubts, func(_ string, d doubt) bool { return now.Before(d.until) })
	tried := maps.Clone(f.doubts[nodeClass].tried)
	form := tried[sent.flavorField]
	again := f.next(sent.flavorField, &form)
	f.doubts[nodeClass] = doubt{until: now.Add(ttl.OfferingFailures), tried: lo.Assign(tried, map[string]int{sent.flavorField: form})}
	return again
}

// doubted reports whether the flavor has two names, of which none has been accepted for its family, while such a name was rejected for the
// NodeClass not long ago: the flavor may be closed, or called by the other name. Flavors of a generation have one name.
func (f *Forms) doubted(flavor, nodeClass string, now time.Time) bool {
	_, family := shortName(flavor)
	if family == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted[fieldFlavor+family] == "" && now.Before(f.doubts[nodeClass].until)
}

// next moves a field to its next form. After the last one it is the first again, and next returns false: the form is not to blame.
func (f *Forms) next(field string, tried *int) bool {
	if _, final := f.accepted[field]; final {
		return false
	}
	*tried = (*tried + 1) % len(formsOf(field))
	return *tried != 0
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

// shortName returns the name of a flavor of an old family without its category, and the family; both as they are, and empty, for
// any other flavor.
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
