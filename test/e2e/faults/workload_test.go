// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

func name(seed uint64) string { return fmt.Sprintf("chaos-%d", seed) }

// nodeClass returns a NodeClass whose servers join, with the defaults otherwise.
func nodeClass(seed uint64) *v1alpha1.BizflyNodeClass {
	return &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name(seed)}, Spec: joining()}
}

// nodePool returns a NodePool whose nodes are deleted as soon as they are empty, and soon where they do not respond.
func nodePool(seed uint64) *karpv1.NodePool {
	pool := environment.NodePool(name(seed), name(seed))
	pool.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 15 * time.Second}
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
	return pool
}

// deployment returns a Deployment whose pods each need a node of their own, and leave one that does not respond.
func deployment(pool *karpv1.NodePool, replicas int32) *appsv1.Deployment {
	leave := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: lo.ToPtr[int64](3)}
	}
	return environment.Deployment(pool.Name, replicas, environment.OnPool(pool.Name), environment.Apart, func(spec *corev1.PodSpec) {
		spec.Tolerations = []corev1.Toleration{leave(corev1.TaintNodeNotReady), leave(corev1.TaintNodeUnreachable)}
	})
}

// machines is whether servers are real machines, which boot and join by the sample for kubeadm.
var machines = os.Getenv("NODES") != ""

// mostServers is how many real machines the runs may have at once: all share the kernel's limit of watchers (test/sandbox/machine).
const mostServers = 5

// joining returns the specification of a NodeClass whose servers join: by the imitated image of BKE, or by the sample for kubeadm.
func joining() v1alpha1.BizflyNodeClassSpec {
	GinkgoHelper()
	if !machines {
		return v1alpha1.BizflyNodeClassSpec{}
	}
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "quota", cloud.Quota{Instances: lo.ToPtr(mostServers)}, nil)).To(Succeed())
	content := lo.Must(os.ReadFile(filepath.Join(env.Root(), "config", "samples", "kubeadm", "nodeclass.yaml")))
	class := &v1alpha1.BizflyNodeClass{}
	Expect(yaml.Unmarshal(content, class)).To(Succeed())
	return class.Spec
}

// mostPods is how many pods a run wants at most, each of which needs a server of its own.
func mostPods() int { return lo.Ternary(machines, 3, 6) }
