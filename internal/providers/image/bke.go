// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	aliasFamily = "bke"
	aliasLatest = "latest"

	// The operating systems of BKE worker images: the rest of an alias's family, as in bke-flatcar@latest.
	osUbuntu  = "ubuntu"
	osFlatcar = "flatcar"
)

// otherOS is the end of versions whose worker image has another operating system than Ubuntu, such as .flatcar: BKE
// lists them as versions of their own.
var otherOS = regexp.MustCompile(`\.([a-z].*)$`)

// workerImage is a version of BKE that has a worker image.
type workerImage struct {
	id        string
	versionID string
	name      string
	version   *version.Version
	os        string
}

func (w workerImage) image() *Image {
	return &Image{
		ID:                w.id,
		Name:              fmt.Sprintf("bke v%s %s", w.version, w.os),
		KubernetesVersion: "v" + w.version.String(),
		Type:              v1alpha1.ImageTypeImage,
		Flatcar:           w.os == osFlatcar,
	}
}

// alias is the selector that selects exactly this image.
func (w workerImage) alias() string { return fmt.Sprintf("%s-%s@v%s", aliasFamily, w.os, w.version) }

// parseAlias splits an alias, such as bke-flatcar@v1.33, into the operating system and the version. An alias that names
// no operating system has that of the cluster's own version.
func parseAlias(alias string, cluster *gobizfly.FullCluster) (os, wanted string) {
	family, wanted, _ := strings.Cut(alias, "@")
	_, clusterOS, _ := parseVersion(cluster.Version.K8SVersion)
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(family, aliasFamily), "-"), clusterOS, osUbuntu), wanted
}

// workerImages are BKE's worker images. Versions without an image id are skipped: BKE lists versions before their
// images are built. So is whatever does not look like a version.
func (r *resolution) workerImages(snapshot *catalog.Snapshot) []workerImage {
	r.offered[keyCatalog] = dates{}
	return lo.FilterMap(snapshot.KubernetesVersions, func(v gobizfly.ControllerVersion, _ int) (workerImage, bool) {
		parsed, os, ok := parseVersion(v.K8SVersion)
		r.offered[keyCatalog][v.WorkerImageID] = time.Time{}
		return workerImage{id: v.WorkerImageID, versionID: v.ID, name: v.Name, version: parsed, os: os}, ok &&
			v.WorkerImageID != ""
	})
}

func parseVersion(s string) (*version.Version, string, bool) {
	os := osUbuntu
	if found := otherOS.FindStringSubmatch(s); found != nil {
		s, os = strings.TrimSuffix(s, found[0]), found[1]
	}
	parsed, err := version.ParseGeneric(s)
	if err != nil {
		return nil, "", false
	}
	return parsed, os, true
}

// byAlias finds a worker image in the catalog. A kubelet must not be newer than its control plane, hence:
//   - bke@latest is the control plane's own version, else the newest older patch of the same minor version;
//   - bke@v1.33 is the newest patch of that minor version that is not above the control plane;
//   - bke@v1.33.5 is exactly that version, where its minor version is not above the control plane's.
func (r *resolution) byAlias(field string, term *v1alpha1.ImageSelectorTerm) (*Image, error) {
	miss := &lookup.NotFoundError{Field: field, Value: term.Alias}
	snapshot, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	if snapshot.ClusterUnknown {
		return nil, catalog.ErrClusterUnknown
	}
	if snapshot.Cluster == nil {
		miss.Remedy = "BKE aliases need a cluster of BizFly Kubernetes Engine: set BKE_CLUSTER_ID, or select an image by " +
			"id, name or os"
		return nil, miss
	}
	all := r.workerImages(snapshot)
	miss.Available = lookup.Shorten(lo.Map(all, func(w workerImage, _ int) string { return w.alias() }))
	controlPlane, _, known := parseVersion(snapshot.Cluster.Version.K8SVersion)
	if known {
		miss.Remedy = fmt.Sprintf("the control plane runs v%s and nodes must not be newer", controlPlane)
	}
	os, wanted := parseAlias(term.Alias, snapshot.Cluster)
	matches, remedy := aliasMatcher(wanted, controlPlane)
	if remedy != "" {
		miss.Remedy = remedy
		return nil, miss
	}
	candidates := lo.Filter(all, func(w workerImage, _ int) bool { return w.os == os && matches(w.version) })
	if len(candidates) == 0 {
		return nil, miss
	}
	own := func(w workerImage) int { return lo.Ternary(w.versionID == snapshot.Cluster.Version.ID, 1, 0) }
	return slices.MaxFunc(candidates, func(a, b workerImage) int {
		return cmp.Or(
			compareVersions(a.version, b.version),
			// One Kubernetes version may be listed with several builds: the cluster's own one comes first, then names decide.
			cmp.Compare(own(a), own(b)),
			strings.Compare(a.name, b.name),
			strings.Compare(a.id, b.id),
		)
	}).image(), nil
}

// aliasMatcher returns what decides whether a version is selected. The control plane is nil when its version could not
// be read; then nothing bounds a pinned alias, and latest selects nothing, as the remedy says.
func aliasMatcher(wanted string, controlPlane *version.Version) (matches func(*version.Version) bool, remedy string) {
	if wanted == aliasLatest {
		if controlPlane == nil {
			return nil, "the cluster does not say which version it runs: pin one, for example bke@v1.33"
		}
		return func(v *version.Version) bool { return sameMinor(v, controlPlane) && !v.GreaterThan(controlPlane) }, ""
	}
	pinned, err := version.ParseGeneric(wanted)
	if err != nil {
		return nil, "an alias is bke@latest, bke@v1.33 or bke@v1.33.5"
	}
	if strings.Count(wanted, ".") > 1 {
		return func(v *version.Version) bool {
			return v.EqualTo(pinned) && (controlPlane == nil || sameMinor(v, controlPlane) || v.LessThan(controlPlane))
		}, ""
	}
	return func(v *version.Version) bool {
		return sameMinor(v, pinned) && (controlPlane == nil || !v.GreaterThan(controlPlane))
	}, ""
}

func sameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

func compareVersions(a, b *version.Version) int {
	order, _ := a.Compare(b.String()) // of a version that was parsed
	return order
}
