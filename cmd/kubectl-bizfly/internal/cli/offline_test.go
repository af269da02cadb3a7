// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
)

var _ = Describe("plan without an account", func() {
	It("should plan manifests with the embedded catalog and the default sample, and say so first", func() {
		withoutCredentials()
		f.reader = nil
		file := written("web.yaml", web)
		Expect(f.run("plan", "-f", file)).To(Equal(cli.ExitOK), f.err)
		lines := strings.Split(f.out, "\n")
		Expect(lines[0]).To(MatchRegexp(`^Offline: the catalog that is built in, \d+ flavors in HN1 and HN2 of region HN .* prices of \d{4}-\d\d-\d\d\.$`))
		Expect(lines[1]).To(ContainSubstring("NodePool default and BizflyNodeClass default of the default sample, without limits"))
		p := answer[plan.Plan](f, "plan", "-f", file)
		Expect(p.Catalog.Zones).To(Equal([]string{"HN1", "HN2"}))
		Expect(p.Assumed).To(Equal([]string{"NodePool default", "BizflyNodeClass default"}))
		Expect(p.Unplaced).To(BeEmpty())
		Expect(f.Requests()).To(BeEmpty())
	})

	It("should plan at the prices of the same catalog with credentials", func() {
		f.reader = nil
		file := written("all.yaml", pools+"---\n"+web)
		with := answer[plan.Plan](f, "plan", "-f", file)
		Expect(with.Catalog).To(BeNil())
		withoutCredentials()
		without := answer[plan.Plan](f, "plan", "-f", file)
		Expect(without.Catalog).ToNot(BeNil())
		Expect(without.Assumed).To(BeEmpty())
		Expect(without.VNDPerHour).To(Equal(with.VNDPerHour))
	})

	It("should use the NodeClass of the default sample under the name that a NodePool refers to", func() {
		withoutCredentials()
		f.reader = nil
		_, pool, _ := strings.Cut(strings.ReplaceAll(pools, "name: default}\n      requirements", "name: fast}\n      requirements"), "---\n")
		p := answer[plan.Plan](f, "plan", "-f", written("all.yaml", pool+"---\n"+web))
		Expect(p.Assumed).To(Equal([]string{"BizflyNodeClass fast"}))
		Expect(p.Unplaced).To(BeEmpty())
	})

	It("should need --offline where there is a cluster, and then read neither it nor the cloud", func() {
		f.apply(pools)
		file := written("web.yaml", web)
		withoutCredentials()
		Expect(f.run("plan", "-f", file)).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("--offline"))
		setEnv("BIZFLY_CLOUD_APP_CRED_ID", "given")
		p := answer[plan.Plan](f, "plan", "-f", file, "--offline")
		Expect(p.Catalog).ToNot(BeNil())
		Expect(p.Assumed).To(ContainElement("NodePool default"))
		Expect(f.Requests()).To(BeEmpty())
		Expect(f.run("plan", "--offline")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("give manifests with -f"))
	})

	It("should report credentials that are not complete", func() {
		withoutCredentials()
		f.reader = nil
		setEnv("BIZFLY_CLOUD_APP_CRED_ID", "given")
		Expect(f.run("plan", "-f", written("web.yaml", web))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("no usable credentials"))
	})

	It("should ignore what a NodeClass names of an account, and report an unknown zone", func() {
		withoutCredentials()
		f.reader = nil
		named := func(spec string) string {
			return written("all.yaml", strings.Replace(pools, "spec: {}", "spec: "+spec, 1)+"---\n"+web)
		}
		p := answer[plan.Plan](f, "plan", "-f", named("{networkSelectorTerms: [{name: ours}], zones: [HN2]}"))
		Expect(p.Nodes).To(HaveEach(HaveField("Zone", "HN2")))
		p = answer[plan.Plan](f, "plan", "-f", named("{zones: [HN7]}"))
		Expect(p.Nodes).To(BeEmpty())
		Expect(p.Notes).To(ContainElement(ContainSubstring("asks for the zones [HN7]")))
	})
})

var _ = Describe("plan --fail-above", func() {
	It("should exit with status 1 above the price alone, after the plan was printed", func() {
		f.apply(pools)
		file := written("web.yaml", web)
		p := answer[plan.Plan](f, "plan", "-f", file)
		Expect(f.run("plan", "-f", file, "--fail-above", "999999999")).To(Equal(cli.ExitOK))
		Expect(f.run("plan", "-f", file, "--fail-above", "1000")).To(Equal(cli.ExitFindings))
		Expect(f.out).To(ContainSubstring("VND per month (720 h"))
		Expect(f.err).To(ContainSubstring("are above 1,000 (--fail-above)"))
		Expect(p.VNDPerMonth).To(BeNumerically(">", 1000))
	})
})
