// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// subject is one part of the cloud or of the cluster that never works.
type subject struct {
	name string
	// matches selects the requests that it affects, and fault is how they are answered.
	matches func(*http.Request, []byte) bool
	fault   cloud.Fault
	// hangs lets these requests have no answer instead.
	hangs bool
	// kube is a kind of call to the API server that always fails; nil for none.
	kube *brokenCall
	// change changes the NodeClass "other" before it is created.
	change func(*v1alpha1.BizflyNodeClass)
	// stops are the workloads that need it, stopsStart those that a controller needs it for that has just started.
	stops, stopsStart []string
	// breaksLaunches reports that launches fail, and not only the start of a controller.
	breaksLaunches bool
	// pool is a workload whose NodePool wants a flavor that does not exist.
	pool string
	// orphan reports that the server without a NodeClaim cannot be deleted.
	orphan bool
	// leaves reports that nodes cannot leave BKE.
	leaves bool
	// condition is that of the NodeClass "other" which tells of the subject, and part the part of the catalog whose metric does; each is
	// empty where it need not.
	condition, part string
}

// told lets the subject, which is this list, be told by what needs the list.
func (s subject) told(path string) subject {
	switch path {
	case "/images":
		s.condition, s.change = v1alpha1.ConditionTypeImagesReady, firstImage(v1alpha1.ImageSelectorTerm{
			OS: &v1alpha1.OSImageSelector{Distribution: "None", Version: "1"}})
	case "/user/images":
		s.condition, s.change = v1alpha1.ConditionTypeImagesReady, firstImage(v1alpha1.ImageSelectorTerm{Name: "none"})
	case "/snapshots":
		s.condition, s.change = v1alpha1.ConditionTypeImagesReady, firstImage(v1alpha1.ImageSelectorTerm{
			Snapshot: &v1alpha1.SnapshotSelector{Name: "none"}})
	case "/vpc-networks":
		s.condition = v1alpha1.ConditionTypeNetworksReady
	case "/firewalls":
		s.condition, s.change = v1alpha1.ConditionTypeFirewallsReady, func(class *v1alpha1.BizflyNodeClass) {
			class.Spec.FirewallSelectorTerms = []v1alpha1.FirewallSelectorTerm{{Name: "default"}}
		}
	case "/keypairs":
		s.condition, s.change = v1alpha1.ConditionTypeSSHKeyReady, func(class *v1alpha1.BizflyNodeClass) {
			class.Spec.SSHKeyName = cloud.DefaultCatalog().SSHKeys[0].Name
		}
	case "/regions":
		s.part = "regions"
	case "/k8s_versions":
		s.part = "Kubernetes versions"
	}
	return s
}

// firstImage lets the NodeClass "other" look for this image first, which does not exist.
func firstImage(term v1alpha1.ImageSelectorTerm) func(*v1alpha1.BizflyNodeClass) {
	return func(class *v1alpha1.BizflyNodeClass) {
		class.Spec.ImageSelectorTerms = append([]v1alpha1.ImageSelectorTerm{term}, class.Spec.ImageSelectorTerms...)
	}
}

type brokenCall struct {
	call string
	err  error
}

// answer adds what happens to a request.
func (s subject) answer(f *outcome, request *http.Request, body []byte) {
	switch {
	case s.matches == nil || !s.matches(request, body):
	case s.hangs:
		f.latency = time.Hour
	default:
		f.faults = append(f.faults, s.fault)
	}
}

// creates selects the create requests with each of these texts in their body.
func creates(texts ...string) func(*http.Request, []byte) bool {
	return func(request *http.Request, body []byte) bool {
		return isCreate(request) && lo.EveryBy(texts, func(text string) bool { return strings.Contains(string(body), text) })
	}
}

// route selects the requests of one method whose path has this in it.
func route(method, path string) func(*http.Request, []byte) bool {
	return func(request *http.Request, _ []byte) bool {
		return request.Method == method && strings.Contains(request.URL.Path, path)
	}
}

// custom lets the NodeClass "other" join by its own user data.
func custom(userData string) func(*v1alpha1.BizflyNodeClass) {
	return func(class *v1alpha1.BizflyNodeClass) {
		class.Spec.BootstrapMode, class.Spec.UserData = v1alpha1.BootstrapModeCustom, &userData
		class.Spec.JoinToken = &v1alpha1.JoinToken{}
	}
}

// oneSubject chooses what is broken.
func oneSubject(r *rand.Rand) subject {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "bootstrap-token", fmt.Errorf("exceeded quota"))
	quota := cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusForbidden,
		Message: "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes_PREMIUM-HDD1 quota"}
	other := []string{"class"}
	return pick(r,
		subject{name: "an offering", matches: creates(`"nix.2c_2g"`, `"HN1"`), fault: oddAnswer(r), stops: []string{"offering"}},
		subject{name: "a flavor", matches: creates(`"nix.4c_8g"`), fault: oddLaunch(r), stops: []string{"flavor"}},
		subject{name: "a zone", matches: creates(`"HN1"`), fault: oddLaunch(r), stops: []string{"zone", "offering"}},
		subject{name: "a volume type", matches: creates(`-HDD1"`), fault: oddAnswer(r), stops: other},
		subject{name: "a quota of disks", matches: creates(`-HDD1"`), fault: quota, stops: other},
		subject{name: "a network", matches: creates(otherNetwork), fault: cloud.Fault{Effect: cloud.EffectNoAddress}, stops: other},
		subject{name: "an image", matches: creates(otherImage), fault: oddLaunch(r), stops: other},
		subject{name: "a template", change: custom("#!/bin/sh\n{{ .NodeName.Missing }}\n"), stops: other},
		subject{name: "join tokens", change: custom("#!/bin/sh\njoin {{ .JoinToken }}\n"), kube: &brokenCall{"create *v1.Secret", forbidden}, stops: other},
		subject{name: "a NodePool", pool: "flavor", stops: []string{"flavor"}},
		brokenRoute(r),
		brokenEngine(r),
		subject{name: "an orphan", orphan: true, fault: cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusForbidden}},
		lyingList(r),
	)
}

// brokenRoute breaks a route that neither a launch nor a deletion needs.
func brokenRoute(r *rand.Rand) subject {
	path := pick(r, "/network-interfaces", "/images", "/user/images", "/snapshots", "/vpc-networks", "/firewalls", "/keypairs", "/regions",
		"/k8s_versions")
	return brokenPath("the route "+path, http.MethodGet, path, r).told(path)
}

// brokenEngine breaks the Kubernetes Engine as a whole, or the call by which a deleted node leaves its cluster.
func brokenEngine(r *rand.Rand) subject {
	if r.IntN(2) == 0 {
		leaving := brokenPath("leaving BKE", http.MethodPost, "/cluster_leave", r)
		leaving.leaves = true
		return leaving
	}
	whole := brokenPath("BKE", "", "kubernetes-engine", r)
	whole.leaves, whole.part = true, "BKE cluster"
	// Nodes join by what the cluster is like, which a controller that starts does not know yet. Those of their own user data do not.
	whole.stopsStart = []string{"anything", "flavor", "zone", "offering"}
	whole.change = func(class *v1alpha1.BizflyNodeClass) {
		if class.Spec.UserData == nil { // user data that is broken too stays so
			custom("#!/bin/sh\n")(class)
		}
	}
	whole.matches = func(request *http.Request, _ []byte) bool {
		return strings.Contains(request.URL.Path, "kubernetes-engine")
	}
	return whole
}

func brokenPath(name, method, path string, r *rand.Rand) subject {
	s := subject{name: name, matches: route(method, path)}
	switch r.IntN(4) {
	case 0:
		s.hangs = true
	case 1:
		s.fault = cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: pick(r, time.Second, 5*time.Minute)}
	default:
		s.fault = cloud.Fault{Effect: cloud.EffectStatus, Status: pick(r, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable)}
	}
	return s
}

// lyingList is a list of which only an empty answer comes.
func lyingList(r *rand.Rand) subject {
	path := pick(r, "/images", "/vpc-networks", "/firewalls", "/keypairs", "/network-interfaces", "/k8s_versions")
	body := pick(r, "[]", "null", "{}")
	s := subject{name: "the list " + path, matches: route(http.MethodGet, path), fault: cloud.Fault{Effect: cloud.EffectBody, Body: body}}.told(path)
	if body == "[]" && (path == "/firewalls" || path == "/keypairs") {
		// What the NodeClass "other" selects does not exist, as far as the cloud says.
		s.stops = []string{"class"}
	}
	return s
}

// otherVersion is that of the worker image of the NodeClass "other".
const otherVersion = "v1.34.6"

var (
	otherNetwork = lo.Must(lo.Find(cloud.DefaultCatalog().VPCs[cloud.RegionHN], func(v cloud.VPC) bool { return v.IsDefault })).ID
	otherImage   = lo.Must(lo.Find(cloud.DefaultCatalog().Versions, func(v cloud.KubernetesVersion) bool {
		return v.KubernetesVersion == otherVersion
	})).WorkerImageID
)
