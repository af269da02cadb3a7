// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
)

var _ = Describe("kubectl bizfly repack", func() {
	var c *cluster
	// passing is the clock of the command; nil is the real one.
	var passing clock.PassiveClock
	// run runs the plugin in the cluster, where time passes while it waits.
	run := func(wait func(context.Context) error, args ...string) (status int, out, errOut string) {
		GinkgoHelper()
		var stdout, stderr bytes.Buffer
		app := cli.For(c.Objects, nil, &stdout, &stderr)
		app.Wait, app.Clock = wait, passing
		app.Connect = func(context.Context, connect.Options) (*connect.Session, error) {
			c.session.Changes = c.client(enough)
			return c.session, nil
		}
		status = app.Run(context.Background(), append([]string{"repack"}, args...)...)
		return status, stdout.String(), stderr.String()
	}
	counts := func() (claims, jobs int) {
		GinkgoHelper()
		c1, j := &karpv1.NodeClaimList{}, &batchv1.JobList{}
		Expect(c.Objects.List(ctx, c1)).To(Succeed())
		Expect(c.Objects.List(ctx, j)).To(Succeed())
		return len(c1.Items), len(j.Items)
	}
	BeforeEach(func() {
		c, _ = offering()
		passing = nil
	})

	It("should show what would be done, and change nothing without --yes", func() {
		before, _ := counts()
		status, out, errOut := run(nil)
		Expect(status).To(Equal(cli.ExitOK), errOut)
		Expect(out).To(And(ContainSubstring("(new)"), ContainSubstring("pods would move: shop/app"), ContainSubstring("VND per month"),
			ContainSubstring("To do it, run: kubectl bizfly repack default --yes")))
		after, jobs := counts()
		Expect(after).To(Equal(before))
		Expect(jobs).To(BeZero())
	})

	It("should do it with --yes, and say how far it is", func() {
		before, _ := c.bill()
		status, out, errOut := run(func(context.Context) error { c.minute(); return nil }, "default", "--yes", "-o", "json")
		Expect(status).To(Equal(cli.ExitOK), errOut)
		var result struct {
			repack.Proposal
			Outcome repack.Outcome
		}
		Expect(json.Unmarshal([]byte(out), &result)).To(Succeed(), out)
		Expect(result.Outcome.Left).To(BeEmpty())
		Expect(result.Outcome.Launched).To(HaveLen(len(result.New)))
		Expect(result.Outcome.VNDPerHour).To(BeNumerically("~", result.VNDPerHourAfter, 1))
		Expect(errOut).To(MatchRegexp(`new nodes are ready, \d+ of \d+ nodes are removed`))
		c.rest()
		after, _ := c.bill()
		Expect(after).To(BeNumerically("<", before))
	})

	It("should end with findings where nodes are left, and name them", func() {
		clk, looks := clocktesting.NewFakePassiveClock(c.Now()), 0
		passing = clk
		status, out, errOut := run(func(context.Context) error {
			c.minute()
			if looks++; looks > 3 {
				clk.SetTime(clk.Now().Add(24 * time.Hour)) // Karpenter has not come to it
			}
			return nil
		}, "--yes", "-o", "json")
		Expect(status).To(Equal(cli.ExitFindings), errOut)
		Expect(out).To(ContainSubstring(`"left": [`))
	})

	It("should say what happens when it is interrupted", func() {
		status, out, errOut := run(func(context.Context) error { return context.Canceled }, "--yes", "-o", "json")
		Expect(status).To(Equal(cli.ExitFailure))
		Expect(out).To(ContainSubstring(`"committed": false`), "what was done so far is printed, too")
		Expect(errOut).To(ContainSubstring("interrupted: no pod is moved"))
		c, _ = offering()
		looks := 0
		status, _, errOut = run(func(context.Context) error {
			if looks++; looks > 3 {
				return context.Canceled
			}
			c.minute()
			return nil
		}, "--yes")
		Expect(status).To(Equal(cli.ExitFailure))
		Expect(errOut).To(ContainSubstring("interrupted: Karpenter continues by itself"))
	})

	It("should move no pod where a new node cannot be launched", func() {
		before, nodes := c.bill()
		status, _, errOut := run(func(context.Context) error {
			claims := &karpv1.NodeClaimList{}
			Expect(c.Objects.List(ctx, claims)).To(Succeed())
			for i := range claims.Items {
				if claims.Items[i].Status.ProviderID == "" {
					Expect(c.Objects.Delete(ctx, &claims.Items[i])).To(Succeed())
					break
				}
			}
			c.minute()
			return nil
		}, "--yes")
		Expect(status).To(Equal(cli.ExitFailure))
		Expect(errOut).To(ContainSubstring("no pod is moved, and Karpenter removes the new nodes"))
		c.rest()
		after, left := c.bill()
		Expect(after).To(BeNumerically("~", before, 0.01))
		Expect(left).To(Equal(nodes))
		Expect(c.Moved).To(BeEmpty())
	})

	It("should name the reason where there is nothing to do", func() {
		c = newCluster(1, "0", mix(1, 2)...)
		status, out, errOut := run(nil, "default")
		Expect(status).To(Equal(cli.ExitOK), errOut)
		Expect(out).To(ContainSubstring("nothing to repack: the NodePool is paused"))
		status, _, errOut = run(nil, "other")
		Expect(status).To(Equal(cli.ExitFailure))
		Expect(errOut).To(ContainSubstring(`there is no NodePool "other" (there are: default)`))
	})
})
