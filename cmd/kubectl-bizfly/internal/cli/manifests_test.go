// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

var _ = Describe("manifests", func() {
	It("should plan the pods of all lines of a table that share a name", func() {
		withoutCredentials()
		f.reader = nil
		file := written("pods.csv", "\ufeff\"name\",cpu,memory,count,zone\nweb,1,2Gi,3,HN1\nweb,1,2Gi,3,HN2\n")
		p := answer[plan.Plan](f, "plan", "-f", file)
		Expect(p.Pods).To(Equal(6))
		Expect(lo.FlatMap(p.Nodes, func(n sim.Node, _ int) []string { return n.Pods })).To(ConsistOf(
			"default/web-0", "default/web-1", "default/web-2", "default/web-3", "default/web-4", "default/web-5"))
	})

	It("should be in the namespace of the flag where they name none", func() {
		withoutCredentials()
		f.reader = nil
		deployment := strings.Replace(web, "name: web, namespace: shop", "name: api", 1) + "---" +
			strings.Replace(web, "name: web, namespace: shop", "name: own, namespace: own", 1)
		deployment = strings.ReplaceAll(deployment, "replicas: 6", "replicas: 1")
		p := answer[plan.Plan](f, "plan", "-f", written("api.yaml", deployment), "-f", written("pods.csv", "name,cpu,memory\nweb,1,2Gi\n"), "-n", "shop")
		Expect(lo.FlatMap(p.Nodes, func(n sim.Node, _ int) []string { return n.Pods })).To(ConsistOf("shop/api-0", "shop/web-0", "own/own-0"))
	})

	It("should place pods whose volumes are not there yet, or not in the files", func() {
		withoutCredentials()
		f.reader = nil
		for _, name := range []string{"oracle/testdata/ephemeral", "oracle/testdata/immediate", "oracle/testdata/nomode", "oracle/testdata/staticpv",
			"oracle/testdata/pvc-missing", "input/testdata/stsdump", "input/testdata/dsdump"} {
			p := answer[plan.Plan](f, "plan", "-f", "../"+name+".yaml")
			Expect(p.Unplaced).To(BeEmpty(), name)
			Expect(p.Pods).To(BeNumerically(">", 0), name)
		}
	})

	It("should say of which pods it is not known what they need", func() {
		withoutCredentials()
		f.reader = nil
		silent := func(name, requests string) string {
			return "---" + strings.NewReplacer("name: web, namespace: shop", "name: "+name, `{cpu: "1", memory: 2Gi}`, requests).Replace(web)
		}
		Expect(answer[plan.Plan](f, "plan", "-f", written("web.yaml", web)).Notes).ToNot(ContainElement(ContainSubstring("without a request")))
		p := answer[plan.Plan](f, "plan", "-f", written("web.yaml", web+silent("small", `{cpu: "1"}`)+silent("none", "{}")))
		Expect(p.Notes).To(ContainElement(HavePrefix("12 pods without a request of CPU or memory (default/none and 1 more): ")))
	})

	It("should say which kinds were not planned, of those that may add pods", func() {
		withoutCredentials()
		f.reader = nil
		others := "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: " +
			"{scaleTargetRef: {kind: Rollout, name: api}, maxReplicas: 2}\n" +
			"---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: api}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
		Expect(f.run("plan", "-f", written("web.yaml", web+others))).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(And(ContainSubstring("HorizontalPodAutoscaler default/web is not planned: its target Rollout api is not in the files"),
			ContainSubstring("objects of kind Rollout were not planned"), Not(ContainSubstring("Service"))))
		Expect(f.run("plan", "-f", written("rollout.yaml", others))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("the files have no pod to plan, only 1 HorizontalPodAutoscaler, 1 Rollout, 1 Service"))
	})
})
