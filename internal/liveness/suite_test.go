/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package liveness_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
)

func TestLiveness(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Liveness")
}

var _ = Describe("Work", func() {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	It("should be alive before it has ever begun", func() {
		Expect((&liveness.Work{}).Stuck(begun, "reading", 0)).To(Succeed())
	})
	It("should be stuck only beyond its limit, and say what hangs", func() {
		work := &liveness.Work{}
		end := work.Begin(begun)
		Expect(work.Stuck(begun.Add(time.Minute), "reading", time.Minute)).To(Succeed())
		Expect(work.Stuck(begun.Add(61*time.Second), "reading", time.Minute)).To(MatchError("reading hangs for 1m1s, more than 1m0s"))
		end()
		Expect(work.Stuck(begun.Add(time.Hour), "reading", time.Minute)).To(Succeed())
	})
	It("should be measured from its newest beginning", func() {
		work := &liveness.Work{}
		work.Begin(begun)()
		work.Begin(begun.Add(time.Hour))
		Expect(work.Stuck(begun.Add(time.Hour+time.Second), "reading", time.Minute)).To(Succeed())
	})
	It("should be told by a function as well", func() {
		Expect(liveness.Func(func(time.Time) error { return errors.New("hangs") }).Stuck(begun)).To(MatchError("hangs"))
	})
})
