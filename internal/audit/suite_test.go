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

package audit_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
)

func TestAudit(t *testing.T) { suite.Run(t, "Audit") }

var _ = Describe("The audit log", func() {
	// line is what a line has beside what every line of the log has.
	line := func(write func(*audit.Log, audit.Record), record audit.Record) map[string]any {
		GinkgoHelper()
		out := &bytes.Buffer{}
		write(audit.New(zap.New(zap.WriteTo(out), zap.JSONEncoder())), record)
		Expect(bytes.Count(out.Bytes(), []byte("\n"))).To(Equal(1), "one line")
		fields := map[string]any{}
		Expect(json.Unmarshal(out.Bytes(), &fields)).To(Succeed())
		return lo.OmitByKeys(fields, []string{"level", "ts", "time", "logger"})
	}
	record := audit.Record{NodeClaim: "default-x", Server: "id", Flavor: "nix.2c_4g", Zone: "HN1",
		Price: 1234.567, Reason: "Cheapest", Took: 1234 * time.Millisecond}

	DescribeTable("should write the same keys of each kind always", func(write func(*audit.Log, audit.Record), record audit.Record, expected map[string]any) {
		Expect(line(write, record)).To(Equal(expected))
	},
		Entry("of a launch", (*audit.Log).Launched, record, map[string]any{
			"msg": "launched server", "NodeClaim": map[string]any{"name": "default-x"}, "server-id": "id", "flavor": "nix.2c_4g", "zone": "HN1",
			"capacity-type": "on-demand", "price-vnd-per-hour": 1234.57, "reason": "Cheapest", "seconds": 1.2}),
		Entry("of a failure about which nothing is known", (*audit.Log).LaunchFailed, audit.Record{Price: math.NaN(), Took: -time.Second}, map[string]any{
			"msg": "launching server failed", "NodeClaim": map[string]any{"name": ""}, "server-id": "", "flavor": "", "zone": "",
			"capacity-type": "on-demand", "price-vnd-per-hour": 0.0, "reason": "", "seconds": 0.0}),
		Entry("of a removal", (*audit.Log).Removed, record, map[string]any{
			"msg": "removed server", "NodeClaim": map[string]any{"name": "default-x"}, "server-id": "id", "flavor": "nix.2c_4g", "zone": "HN1",
			"capacity-type": "on-demand", "reason": "Cheapest", "seconds": 1.2}),
	)
})
