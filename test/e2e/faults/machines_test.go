// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// machines is whether servers are real machines, which boot and join by the sample for kubeadm: `make e2e SUITE=nodes-faults`.
var machines = os.Getenv("NODES") != ""

// mostServers is how many servers the runs may have at once on real machines, by the quota: all machines share the kernel's limit of
// watchers (test/sandbox/machine), which leaves two for what no quota limits.
const mostServers = 5

// useMachines makes the servers of an environment real machines.
func useMachines(options *environment.Options) {
	options.Machines = true
	options.ControllerEnv["JOIN_TOKENS"] = "true"
}

// joining returns the specification of a NodeClass whose servers join: by the imitated image of BKE, or by the sample for kubeadm.
func joining() v1alpha1.BizflyNodeClassSpec {
	GinkgoHelper()
	if !machines {
		return v1alpha1.BizflyNodeClassSpec{}
	}
	content, err := os.ReadFile(filepath.Join(env.Root(), "config", "samples", "kubeadm", "nodeclass.yaml"))
	Expect(err).NotTo(HaveOccurred())
	class := &v1alpha1.BizflyNodeClass{}
	Expect(yaml.Unmarshal(content, class)).To(Succeed())
	return class.Spec
}

// quota limits how many servers the project has beside the foreign ones; nil is as many as there is room for.
func quota(instances *int) {
	GinkgoHelper()
	if instances == nil && machines {
		foreign := len(foreignServers())
		most := foreign + mostServers
		instances = &most
	}
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "quota", cloud.Quota{Instances: instances}, nil)).To(Succeed())
}

// mostPods is how many pods a run wants at most, each of which needs a server of its own.
func mostPods() int {
	if machines {
		return 3
	}
	return 6
}

// foreignStatus is the status of servers of others. They have no user data of interest, and machines are few.
func foreignStatus() string {
	if machines {
		return cloud.StatusShutoff
	}
	return cloud.StatusActive
}

// expectRealNodes checks that what has joined is a machine where it should be one: a kubelet reports the distribution that runs, guests say
// the name of their image.
func expectRealNodes() {
	GinkgoHelper()
	seen, err := observe()
	Expect(err).NotTo(HaveOccurred())
	Expect(seen.Nodes).NotTo(BeEmpty())
	for _, node := range seen.Nodes {
		Expect(strings.HasPrefix(node.Status.NodeInfo.OSImage, "Debian ")).To(Equal(machines), "%s: %+v", node.Name, node.Status.NodeInfo)
	}
}

// consoles returns what machines that have a server printed last while they booted.
func consoles() string {
	state, err := env.Sandbox().State(ctx)
	if err != nil || !machines {
		return ""
	}
	var text strings.Builder
	for _, s := range state.Servers {
		lines := strings.Split(env.Console(s.ID), "\n")
		fmt.Fprintf(&text, "the console of %s, %s:\n%s\n", s.Name, s.Status, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
	return text.String() + env.Log("sandbox", 50)
}
