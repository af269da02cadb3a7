// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/explain"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/suggest"
)

// patient is a limit that a search reaches on no machine: it looks at every shape.
const patient = "20m"

// mixed is a table of pods of many sizes.
func mixed(pods int) string {
	var table strings.Builder
	table.WriteString("name,count,cpu,memory\n")
	for i := range pods / 10 {
		_, _ = fmt.Fprintf(&table, "app-%d,10,%dm,%dMi\n", i, 100+i%7*150, 128+i%5*700)
	}
	return written("pods.csv", table.String())
}

var _ = Describe("plan suggest", func() {
	It("should find a NodePool that is cheaper than one whose flavors do not suit, and write it", func() {
		f.reader = nil
		small := strings.ReplaceAll(pools, "values: [premium]}", "values: [premium, enterprise]}\n"+
			`      - {key: karpenter.bizflycloud.vn/instance-memory, operator: Gte, values: ["2048"]}`+"\n"+
			`      - {key: karpenter.bizflycloud.vn/instance-cpu, operator: Lte, values: ["2"]}`)
		manifest, pods := written("pools.yaml", small), mixed(60)
		out := filepath.Join(GinkgoT().TempDir(), "nodepool.yaml")
		s := answer[suggest.Suggestion](f, "plan", "suggest", "-f", manifest, "-f", pods, "--write", out, "--time-limit", patient)
		Expect(s.Pods).To(Equal(60))
		Expect(s.NodePool).To(Equal("default"))
		Expect(s.TimeOver).To(BeFalse())
		best := s.Candidates[0]
		Expect(best.Unplaced).To(BeZero())
		Expect(best.VNDPerMonth).To(BeNumerically("<", (1-suggest.LeastSaving)*s.Now.VNDPerMonth))
		Expect(lo.IsSortedBy(s.Candidates, func(c suggest.Candidate) float64 { return c.VNDPerHour })).To(BeTrue())

		set, err := input.Read(nil, out)
		Expect(err).ToNot(HaveOccurred(), "it is a NodePool that the API server takes")
		Expect(set.Objects).ToNot(BeEmpty())
		class, _, _ := strings.Cut(pools, "---\n")
		p := answer[plan.Plan](f, "plan", "-f", out, "-f", pods, "-f", written("class.yaml", class))
		Expect(p.Unplaced).To(BeEmpty())
		Expect(p.VNDPerMonth).To(BeNumerically("~", best.VNDPerMonth, 0.1*best.VNDPerMonth), "what is written is what was planned, but for chance")
	})

	It("should keep what the NodePool asks for beside the size, and its smallest size", func() {
		f.reader = nil
		s := answer[suggest.Suggestion](f, "plan", "suggest", "-f", mixed(40), "--time-limit", patient)
		Expect(s.Candidates).ToNot(BeEmpty())
		for _, c := range s.Candidates {
			Expect(c.Shape.Category).To(BeElementOf("", "premium", "enterprise"), "no other category is in the default sample")
			Expect(c.Name).ToNot(ContainSubstring("up to 1 vCPU"))
		}
		Expect(s.Assumed).To(ContainElement("NodePool default"))
	})

	It("should print the candidates, and YAML that can be applied", func() {
		f.reader = nil
		file := mixed(30)
		Expect(f.run("plan", "suggest", "-f", file)).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(MatchRegexp(`NODEPOOL DEFAULT +NODES +UNPLACED +VND/HOUR +VND/MONTH +TO NOW *\n`))
		Expect(f.out).To(MatchRegexp(`(?m)^as it is .*\+0\.0%`))
	})

	It("should search with some of many pods, and plan the best shapes with all", func(ctx context.Context) {
		newFixture()
		withoutCredentials()
		reader, err := connect.NewFor(ctx, nil, connect.Options{Offline: true})
		Expect(err).ToNot(HaveOccurred())
		options := suggest.Options{Options: input.Options{Files: []string{mixed(90)}}, MaxPods: 60}
		s, err := suggest.Compute(reader.Context(ctx), reader, options, time.Hour, func(int) {})
		Expect(err).ToNot(HaveOccurred())
		Expect(s.Pods).To(Equal(90))
		Expect(s.Sample).To(Equal(60))
		Expect(s.Candidates).To(And(Not(BeEmpty()), HaveLen(min(len(s.Candidates), 5))))
		gated := strings.NewReplacer("replicas: 6", "replicas: 900",
			"containers:", "schedulingGates: [{name: queue}]\n      containers:").Replace(web)
		options.Files = append(options.Files, written("gated.yaml", gated))
		beside, err := suggest.Compute(reader.Context(ctx), reader, options, time.Hour, func(int) {})
		Expect(err).ToNot(HaveOccurred())
		names := func(s *suggest.Suggestion) []string {
			return lo.Map(s.Candidates, func(c suggest.Candidate, _ int) string { return c.Name })
		}
		Expect(names(beside)).To(ConsistOf(names(s)), "gated pods are none of the 60")
	})

	It("should end when its time is over, and say so", func() {
		f.reader = nil
		s := answer[suggest.Suggestion](f, "plan", "suggest", "-f", mixed(30), "--time-limit", "1ns")
		Expect(s.TimeOver).To(BeTrue())
		Expect(s.Candidates).To(BeEmpty())
		Expect(s.Suggested).To(BeNil())
		Expect(f.run("plan", "suggest", "-f", mixed(30), "--time-limit", "1ns")).To(Equal(cli.ExitOK))
		Expect(f.out).To(ContainSubstring("raise --time-limit"))
	})

	It("should report that there is nothing to suggest a NodePool for", func() {
		f.reader = nil
		Expect(f.run("plan", "suggest", "-f", written("pods.csv", "name,cpu,memory\nhuge,500,1Ti\n"))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("nothing to suggest"))
	})
})

var _ = Describe("plan explain", func() {
	// constrained is a Deployment whose pods share no node with each other, which is expensive, and ask for a zone, which is not.
	constrained := strings.Replace(web, "      containers:", `      nodeSelector: {topology.kubernetes.io/zone: HN1}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:`, 1)

	It("should rank constraints by what the plan costs less without each", func() {
		f.reader = nil
		file := written("web.yaml", strings.Replace(constrained, "replicas: 6", "replicas: 16", 1))
		e := answer[explain.Explanation](f, "plan", "explain", "-f", file)
		Expect(e.Constraints).ToNot(BeEmpty())
		first := e.Constraints[0]
		Expect(first.Kind).To(Equal(explain.KindAntiAffinity))
		Expect(first.Of).To(Equal("shop/web"))
		Expect(first.VNDPerMonth).To(BeNumerically("~", first.VNDPerHour*price.HoursPerMonth, 0.01))
		Expect(e.Constraints).ToNot(ContainElement(HaveField("Kind", explain.KindSelector)), "a zone costs nothing here")
		Expect(e.Free).To(BeNumerically(">", 0))
		Expect(f.run("plan", "explain", "-f", file)).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(MatchRegexp(`anti-affinity +shop/web +kubernetes.io/hostname +[\d,]+`))
	})

	DescribeTable("should price what some pods of a name have alone", func(first, second string) {
		f.reader = nil
		many := strings.Replace(constrained, "replicas: 6", "replicas: 16", 1)
		file := written("web.yaml", strings.Replace(many, "kind: Deployment", "kind: "+first, 1)+"---\n"+strings.Replace(web, "kind: Deployment", "kind: "+second, 1))
		e := answer[explain.Explanation](f, "plan", "explain", "-f", file)
		Expect(e.Constraints).To(ContainElement(And(HaveField("Kind", explain.KindAntiAffinity), HaveField("Of", "shop/web"))))
	}, Entry("the first ones", "Deployment", "ReplicaSet"), Entry("others", "StatefulSet", "Deployment"))

	It("should name first what keeps pods from having a place", func() {
		f.reader = nil
		e := answer[explain.Explanation](f, "plan", "explain", "-f", written("pods.csv", "name,count,cpu,memory,zone\napi,3,500m,1Gi,HN7\n"))
		Expect(e.Unplaced).To(HaveLen(3))
		Expect(e.Constraints).To(HaveExactElements(And(HaveField("Kind", explain.KindSelector), HaveField("Placed", 3))), "nothing else has a price")
	})

	It("should find the one that costs something among others of its kind", func() {
		f.reader = nil
		var all strings.Builder
		for i := range 16 {
			one := strings.NewReplacer("name: web,", fmt.Sprintf("name: app-%d,", i), "app: web", fmt.Sprintf("app: app-%d", i), "replicas: 6", "replicas: 2",
				`cpu: "1", memory: 2Gi`, "cpu: 250m, memory: 512Mi").Replace(constrained)
			if i != 7 {
				one = strings.Replace(one, "kubernetes.io/hostname", "topology.kubernetes.io/zone", 1)
			} else {
				one = strings.Replace(one, "replicas: 2", "replicas: 24", 1)
			}
			all.WriteString("---\n" + strings.Replace(one, "      nodeSelector: {topology.kubernetes.io/zone: HN1}\n", "", 1))
		}
		e := answer[explain.Explanation](f, "plan", "explain", "-f", written("all.yaml", all.String()))
		Expect(e.Constraints).To(ContainElement(And(HaveField("Kind", explain.KindAntiAffinity), HaveField("Of", "shop/app-7"))))
	})

	It("should plan a few times for 200 workloads, by kind and not by workload", func(ctx context.Context) {
		newFixture()
		withoutCredentials()
		s, err := connect.NewFor(ctx, nil, connect.Options{Offline: true})
		Expect(err).ToNot(HaveOccurred())
		table, passes := "name,cpu,memory,zone\n", 0
		for i := range 200 {
			table += fmt.Sprintf("app-%d,50m,64Mi,HN1\n", i)
		}
		files := input.Options{Files: []string{written("pods.csv", table)}}
		_, err = explain.Compute(s.Context(ctx), s, files, time.Minute, func(n int) {
			Expect(n).To(Equal(passes+1), "each plan is shown")
			passes = n
		})
		Expect(err).ToNot(HaveOccurred())
		Expect(passes).To(And(BeNumerically(">", 0), BeNumerically("<=", 40)))
	})

	It("should give the bill without prices when the time is over", func() {
		f.reader = nil
		file := written("web.yaml", constrained)
		Expect(f.run("plan", "explain", "-f", file, "--time-limit", "1ns")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("6 pods on 6 new nodes"), ContainSubstring("raise --time-limit"),
			ContainSubstring("0 constraints with a price; 0 without")))
		Expect(answer[explain.Explanation](f, "plan", "explain", "-f", file).TimeOver).To(BeFalse())
	})
})
