// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
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
	// accepted are the forms that the cloud takes, by field.
	accepted map[string]string
	// met are rejections by what they count for.
	met map[scope]rejections
}

// scope is a NodeClass (capacity.NodeClassKey) in a zone. Others need not meet the same rejections, since the NodeClass or the zone may be
// what is wrong.
type scope struct{ nodeClass, zone string }

// rejections are what was met while forms were not known. They are replaced, never changed.
type rejections struct {
	all []rejection
	// doubtful is true once a name of an old flavor was rejected: flavors are doubted whose family has not been launched by either name.
	doubtful bool
	// until is how long this is remembered.
	until time.Time
}

// rejection is that of one create request.
type rejection struct {
	sent spelling
	// field is what it names: fieldVolumeType, fieldFlavor or, where it names neither, nothing.
	field string
}

// spelling is the form of each field in one create request.
type spelling struct {
	volumeType string
	// flavorField is empty for a flavor that has one name.
	flavorField, flavor string
}

// excludes reports whether the spelling would be rejected as well.
func (r rejection) excludes(s spelling) bool {
	switch r.field {
	case fieldVolumeType:
		return s.volumeType == r.sent.volumeType
	case fieldFlavor:
		return r.suspects(s)
	}
	return s == r.sent
}

// suspects reports whether the rejection may be about the name of the flavor.
func (r rejection) suspects(s spelling) bool {
	return r.field != fieldVolumeType && s.flavorField == r.sent.flavorField && s.flavor == r.sent.flavor
}

// of returns the spelling of a create request of the flavor.
func (f *Forms) of(flavor string, in scope) spelling {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spelling(flavor, f.met[in].all)
}

// spelling returns the spelling to send after the rejections, the first one where they leave none; the caller holds the lock.
func (f *Forms) spelling(flavor string, met []rejection) spelling {
	all := f.spellings(flavor)
	return lo.FirstOr(without(all, met), all[0])
}

// spellings are all that the cloud may take for the flavor, most likely first; the caller holds the lock.
func (f *Forms) spellings(flavor string) (all []spelling) {
	field, names := "", []string{""}
	if _, family := shortName(flavor); family != "" {
		field = fieldFlavor + family
		names = f.possible(field)
	}
	for _, name := range names {
		for _, volumeType := range f.possible(fieldVolumeType) {
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

// without returns the spellings that the rejections leave, most likely first: with a name of the flavor that none of them may be about, so
// that one field that is rejected without words takes as few requests as one that is named.
func without(all []spelling, met []rejection) []spelling {
	left := lo.Reject(all, func(s spelling, _ int) bool { return lo.SomeBy(met, func(r rejection) bool { return r.excludes(s) }) })
	suspected := func(s spelling) int {
		return lo.Ternary(lo.SomeBy(met, func(r rejection) bool { return r.suspects(s) }), 1, 0)
	}
	slices.SortStableFunc(left, func(a, b spelling) int { return cmp.Compare(suspected(a), suspected(b)) })
	return left
}

// forms are the forms by field.
func (s spelling) forms() map[string]string {
	return lo.OmitByKeys(map[string]string{fieldVolumeType: s.volumeType, s.flavorField: s.flavor}, []string{""})
}

// reject remembers that the spelling was rejected, and reports whether there is another one that is worth a create request.
// A rejection that names no field may be about the flavor, which is then doubted, or about the volume type.
func (f *Forms) reject(sent spelling, flavor string, in scope, err error, now time.Time) bool {
	if !bizfly.MayBeForm(err) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	met, all := f.met[in], f.spellings(flavor)
	if f.spelling(flavor, met.all) != sent {
		return true // another launch has changed it meanwhile
	}
	rejected := rejection{sent: sent, field: fieldNamed(err)}
	if len(without(all, []rejection{rejected})) == 0 {
		return false // there is one form of what it may be about
	}
	met.all = append(slices.Clone(met.all), rejected)
	met.doubtful = met.doubtful || rejected.field != fieldVolumeType && len(f.possible(sent.flavorField)) > 1
	met.until = now.Add(ttl.OfferingFailures)
	again := len(without(all, met.all)) > 0
	if !again {
		met.all = nil // the form is not to blame, and the next launch begins anew
	}
	f.met = lo.Assign(lo.PickBy(f.met, func(_ scope, other rejections) bool { return now.Before(other.until) }),
		map[scope]rejections{in: met})
	return again
}

// fieldNamed returns the field that a rejection names, empty where it names none.
func fieldNamed(err error) string {
	switch {
	case bizfly.NamesVolumeType(err):
		return fieldVolumeType
	case bizfly.NamesOffering(err):
		return fieldFlavor
	}
	return ""
}

// doubted reports whether the flavor has two names, of which none has been accepted for its family, while such a name was rejected for the
// NodeClass in any zone not long ago: the flavor may be closed, or called by the other name. Flavors of a generation have one name.
func (f *Forms) doubted(flavor, nodeClass string, now time.Time) bool {
	_, family := shortName(flavor)
	if family == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted[fieldFlavor+family] == "" && lo.SomeBy(lo.Entries(f.met), func(met lo.Entry[scope, rejections]) bool {
		return met.Key.nodeClass == nodeClass && met.Value.doubtful && now.Before(met.Value.until)
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
