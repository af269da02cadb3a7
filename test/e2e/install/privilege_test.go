// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// right is one thing that the controller may do, or has done.
type right struct{ group, resource, verb string }

func (r right) String() string {
	return strings.TrimPrefix(r.group+"/", "/") + r.resource + " " + r.verb
}

// unused are the rights that the scenario of this suite does not need, by what would need them. A right that is granted,
// not used and not named here fails the suite, so that none is granted by habit.
var unused = map[string][]string{
	"informers fall back to plain reads, and controllers read single objects past the cache": {
		"nodes get", "pods get", "namespaces list", "namespaces watch", "persistentvolumes get", "persistentvolumes watch",
		"persistentvolumeclaims get", "storage.k8s.io/storageclasses get", "storage.k8s.io/csinodes get", "storage.k8s.io/volumeattachments get",
		"policy/poddisruptionbudgets get", "apps/daemonsets get", "karpenter.sh/nodepools get", "karpenter.sh/nodeclaims get",
		"karpenter.bizflycloud.vn/bizflynodeclasses get", "karpenter.bizflycloud.vn/providerconfigs get",
	},
	"informers list where the API server does not stream what there is, as those before 1.34 do not": {
		"nodes list", "pods list", "apps/daemonsets list", "policy/poddisruptionbudgets list", "karpenter.sh/nodepools list",
		"karpenter.sh/nodeclaims list", "karpenter.bizflycloud.vn/bizflynodeclasses list", "karpenter.bizflycloud.vn/providerconfigs list",
		"storage.k8s.io/csinodes list", "storage.k8s.io/volumeattachments list",
	},
	"pods with volumes; none has any here": {
		"persistentvolumes list", "persistentvolumeclaims list", "persistentvolumeclaims watch", "storage.k8s.io/storageclasses list",
		"storage.k8s.io/storageclasses watch",
	},
	"a pod that outlives its node's terminationGracePeriod is deleted; none does here": {"pods delete"},
	"the admission plugin OwnerReferencesPermissionEnforcement, which this API server runs without, asks for it": {
		"karpenter.sh/nodepools/finalizers update", "karpenter.sh/nodeclaims/finalizers update",
	},
	"the count of an event that repeats":                              {"events patch"},
	"the condition of a Node whose server does not run; all run here": {"nodes/status patch"},
}

// uninstalls are the times from the beginning of helm uninstall to the end of the last process.
var uninstalls [][2]time.Time

// granted are the rights of the release's roles, with the names that they are limited to.
func granted() map[right][]string {
	GinkgoHelper()
	rights := map[right][]string{}
	add := func(rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[right{group, resource, verb}] = append(rights[right{group, resource, verb}], rule.ResourceNames...)
					}
				}
			}
		}
	}
	ours := client.MatchingLabels{"app.kubernetes.io/instance": release}
	bindings := e2e.Listed(Default, env, &rbacv1.ClusterRoleBindingList{}, ours).Items
	for _, role := range e2e.Listed(Default, env, &rbacv1.ClusterRoleList{}, ours).Items {
		// The aggregated roles are for users.
		if slices.ContainsFunc(bindings, func(b rbacv1.ClusterRoleBinding) bool { return b.RoleRef.Name == role.Name }) {
			add(role.Rules)
		}
	}
	for _, role := range e2e.Listed(Default, env, &rbacv1.RoleList{}, ours).Items {
		Expect(role.Namespace).To(Equal(namespace), "%s: nothing is granted in another namespace", role.Name)
		add(role.Rules)
	}
	Expect(rights).NotTo(BeEmpty())
	return rights
}

// serviceAccount is the user that the pods are.
func serviceAccount() string {
	GinkgoHelper()
	pods := e2e.Listed(Default, env, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/instance": release})
	Expect(pods.Items).NotTo(BeEmpty())
	return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, pods.Items[0].Spec.ServiceAccountName)
}

// asked are the rights that requests used.
func asked(events []environment.AuditEvent) map[right]int {
	used := map[right]int{}
	for _, event := range events {
		if event.ObjectRef == nil {
			continue
		}
		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		used[right{event.ObjectRef.APIGroup, resource, event.Verb}]++
	}
	return used
}

// expectLeastPrivilege looks at what the controller asked for during the lifetime of the release, which began then.
// Helm takes the roles away while the pods still end, so that what they ask for then is forbidden, and that is not counted.
func expectLeastPrivilege(user string, rights map[right][]string, began time.Time) {
	GinkgoHelper()
	events := lo.Must(env.AuditEvents(user))
	events = lo.Reject(events, func(e environment.AuditEvent, _ int) bool {
		return e.ReceivedAt.Before(began) || slices.ContainsFunc(uninstalls, func(u [2]time.Time) bool {
			return e.ReceivedAt.After(u[0]) && e.ReceivedAt.Before(u[1])
		})
	})
	Expect(len(events)).To(BeNumerically(">", 100), "the audit log of %s", user)

	forbidden := lo.Filter(events, func(e environment.AuditEvent, _ int) bool {
		return e.ResponseStatus.Code == http.StatusForbidden || e.Annotations["authorization.k8s.io/decision"] == "forbid"
	})
	Expect(lo.Uniq(lo.Map(forbidden, func(e environment.AuditEvent, _ int) string { return e.Verb + " " + e.RequestURI }))).To(BeEmpty(), "forbidden requests")

	for _, event := range events {
		ref := event.ObjectRef
		if ref == nil {
			continue
		}
		switch ref.Resource {
		case "secrets", "configmaps":
			Expect(event.Verb).To(Equal("get"), event.RequestURI)
			Expect(ref.Namespace).To(Equal(namespace), event.RequestURI)
			Expect(ref.Name).NotTo(BeEmpty(), event.RequestURI)
		case "leases":
			Expect(ref.Namespace).To(Equal(namespace), event.RequestURI)
		}
	}
	report(rights, asked(events))
}

// report writes what was granted and how often it was used, and fails for what is not needed.
func report(rights map[right][]string, used map[right]int) {
	GinkgoHelper()
	reasons := map[string]string{}
	for reason, list := range unused {
		for _, name := range list {
			reasons[name] = reason
		}
	}
	var lines, needless []string
	for r, names := range rights {
		line := fmt.Sprintf("| %s | %s | %d |", r, strings.Join(names, ", "), used[r])
		if used[r] == 0 {
			if reasons[r.String()] == "" {
				needless = append(needless, r.String())
			}
			line += " " + reasons[r.String()]
		}
		lines = append(lines, line+" |")
	}
	slices.Sort(lines)
	text := "| right | only | used | why it is granted though this run did not use it |\n|---|---|---|---|\n" + strings.Join(lines, "\n") + "\n"
	path := filepath.Join(env.Root(), ".cache", "reports", "permissions.md")
	Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	GinkgoWriter.Printf("every right, in %s:\n%s", path, text)
	slices.Sort(needless)
	Expect(needless).To(BeEmpty(), "granted, never used and without a reason")
}
