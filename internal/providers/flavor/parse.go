// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// index is the flavors of one catalog content, parsed. It is immutable.
type index struct {
	seq     uint64
	flavors []*facts // sorted by name
	byName  map[string]*facts
	skipped map[string]string // why flavors are not used, by name
}

// indexOf returns the parsed flavors of the snapshot. Two that parse the same content at once do so in vain but not
// wrongly.
func (p *DefaultProvider) indexOf(snapshot *catalog.Snapshot) *index {
	if current := p.index.Load(); current != nil && current.seq == snapshot.Seq {
		return current
	}
	next := &index{seq: snapshot.Seq, byName: map[string]*facts{}, skipped: map[string]string{}}
	for _, flavor := range snapshot.Flavors {
		parsed, reason := parse(flavor)
		if next.byName[flavor.Name] != nil {
			reason = "another flavor has the same name"
		}
		if reason != "" {
			next.skipped[flavor.Name] = reason
			continue
		}
		next.byName[parsed.name] = parsed
		next.flavors = append(next.flavors, parsed)
	}
	p.index.Store(next)
	return next
}

// facts are what is known of a flavor once the API's fields are read and its name has filled the gaps. Empty strings
// and nil slices are not stated anywhere.
type facts struct {
	name       string
	category   string
	generation string
	vendor     string
	cpu        int
	memoryMiB  int
	gpuName    string
	gpuCount   int
	zones      []string // nil: everywhere
	plans      []string // nil: with every plan
	// complete is true for a flavor that the cloud describes completely.
	complete bool
}

// complete reports whether the cloud itself, rather than the flavor's name, says of which generation the flavor is,
// where it exists and with which plans. Of others it is not known whether they can still be launched: old flavors lack
// some of it.
func complete(in *gobizfly.ServerFlavorResponse) bool {
	return in.Generation.Code != "" && len(in.Generation.AvailabilityZones) > 0 && len(in.BillingPlans) > 0
}

// Names carry what older entries of the API do not: "nix.2c_4g" is premium, "2c_4g_basic" has its category at the end,
// "p4a.2c_4g" is premium of generation 4a at its beginning.
var (
	newName        = regexp.MustCompile(`^([pbed])(\d+[a-z]?)\.`)
	categoryOfName = map[string]string{"p": "premium", "b": "basic", "e": "enterprise", "d": "dedicated"}
	codeOfCategory = regexp.MustCompile(`^[pbed]\d`)
)

// parse reads a flavor of the catalog. The reason says why it is not used.
func parse(in *gobizfly.ServerFlavorResponse) (f *facts, reason string) {
	f = &facts{
		name: in.Name, cpu: in.VCPUs, memoryMiB: in.RAM,
		category: categoryFrom(in),
		vendor:   labelValue(strings.ToLower(in.Generation.Vendor)),
		zones:    in.Generation.AvailabilityZones, plans: in.BillingPlans,
		complete: complete(in),
	}
	if gpu := lo.FromPtr(in.GPU); gpu.Count > 0 {
		f.gpuName, f.gpuCount = labelValue(gpu.Name), gpu.Count
	}
	f.generation = labelValue(generationFrom(in, f.category))
	if f.vendor == "" {
		f.vendor = vendorFrom(f.generation)
	}
	switch {
	case in.Name == "" || len(validation.IsValidLabelValue(in.Name)) > 0:
		// The node's instance-type label is the name as it is; a name that cannot be one would poison the launch.
		return nil, "its name is no valid label value"
	case strings.Contains(in.Name, "_vps") || f.category == "vps":
		return nil, "it belongs to another product (VPS)"
	case in.VCPUs <= 0 || in.RAM <= 0:
		return nil, "it has no CPU or no memory"
	case f.category == "":
		return nil, "its category is neither in the API nor in its name, and servers are created by category"
	case len(validation.IsValidLabelValue(f.category)) > 0:
		return nil, "its category is no valid label value"
	}
	return f, ""
}

// fromLabels returns the facts of a flavor that the cloud does not list any more from the labels of a claim that runs
// on it.
func fromLabels(labels map[string]string) (*facts, bool) {
	cpu, errCPU := strconv.Atoi(labels[v1alpha1.LabelInstanceCPU])
	memory, errMemory := strconv.Atoi(labels[v1alpha1.LabelInstanceMemory])
	gpus, _ := strconv.Atoi(labels[v1alpha1.LabelInstanceGPUCount]) // absent without GPUs
	f := &facts{
		name:       labels[corev1.LabelInstanceTypeStable],
		category:   labels[v1alpha1.LabelInstanceCategory],
		generation: labels[v1alpha1.LabelInstanceGeneration],
		vendor:     labels[v1alpha1.LabelInstanceCPUManufacturer],
		cpu:        cpu, memoryMiB: memory,
		gpuName: labels[v1alpha1.LabelInstanceGPUName], gpuCount: gpus,
	}
	return f, errCPU == nil && errMemory == nil && cpu > 0 && memory > 0 && gpus >= 0 && f.name != ""
}

// item is what the compute of a server is priced as.
func (f *facts) item(plan v1alpha1.BillingPlan) pricing.Item {
	return pricing.Item{Category: f.category, Generation: f.generation, CPU: f.cpu, MemoryMiB: f.memoryMiB,
		GPUName: f.gpuName, GPUCount: f.gpuCount,
		BillingPlan: plan}
}

func categoryFrom(in *gobizfly.ServerFlavorResponse) string {
	if category := strings.ToLower(strings.TrimSpace(cmp.Or(in.Category, in.Generation.Category))); category != "" {
		return category
	}
	if match := newName.FindStringSubmatch(in.Name); match != nil {
		return categoryOfName[match[1]]
	}
	if strings.HasPrefix(in.Name, "nix.") {
		return "premium"
	}
	for _, category := range categoryOfName {
		if strings.HasSuffix(in.Name, "_"+category) {
			return category
		}
	}
	return ""
}

// generationFrom returns the generation's code without the letter of the category, which some codes begin with: "p4a"
// and "4a" are the same hardware.
func generationFrom(in *gobizfly.ServerFlavorResponse, category string) string {
	code := strings.ToLower(strings.TrimSpace(in.Generation.Code))
	if codeOfCategory.MatchString(code) && category != "" && code[0] == category[0] {
		code = code[1:]
	}
	if code == "" {
		if match := newName.FindStringSubmatch(in.Name); match != nil {
			code = match[2]
		}
	}
	return code
}

// vendorFrom reads the vendor from the code of a generation: a number is Intel's, one with an "a" behind it AMD's.
func vendorFrom(generation string) string {
	switch {
	case generation == "" || !unicode.IsDigit(rune(generation[0])):
		return ""
	case strings.HasSuffix(generation, "a"):
		return "amd"
	case strings.TrimLeft(generation, "0123456789") == "":
		return "intel"
	}
	return ""
}

// family returns the part of the name before the dot and, of a name without one, the category.
func (f *facts) family() string {
	if family, _, found := strings.Cut(f.name, "."); found {
		return labelValue(family)
	}
	return f.category
}

// size returns the name without family and category.
func (f *facts) size() string {
	name := f.name
	if _, size, found := strings.Cut(name, "."); found {
		name = size
	}
	return labelValue(strings.TrimSuffix(name, "_"+f.category))
}

// labelValue turns text into a valid label value: "NVIDIA A30" becomes "NVIDIA-A30".
func labelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, strings.TrimSpace(text))
	return strings.Trim(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

// matches reports whether the term selects the flavor.
func (f *facts) matches(term v1alpha1.FlavorSelectorTerm) bool {
	return (term.Name == "" || lookup.Glob(term.Name, f.name)) &&
		(term.Category == "" || strings.EqualFold(term.Category, f.category)) &&
		(term.Generation == "" || strings.EqualFold(term.Generation, f.generation))
}

// existsIn reports whether the zone has the flavor's hardware.
func (f *facts) existsIn(zone string) bool {
	return len(f.zones) == 0 || slices.Contains(f.zones, zone)
}

// availableWith reports whether servers of the flavor can have the plan.
func (f *facts) availableWith(plan v1alpha1.BillingPlan) bool {
	return len(f.plans) == 0 || slices.Contains(f.plans, bizfly.PlanWord(plan))
}
