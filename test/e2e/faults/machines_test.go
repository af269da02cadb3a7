// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"net/http"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

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
