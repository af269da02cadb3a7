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

package tuning_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"

	"github.com/samber/lo"
)

func TestTuning(t *testing.T) { suite.Run(t, "Tuning") }

// table is a price table in which a GPU of the newest kind costs this.
func table(gpu float64) string {
	return strings.Replace(string(lo.Must(os.ReadFile("../../pricing/table.yaml"))), "h100: 90000", fmt.Sprintf("h100: %g", gpu), 1)
}
