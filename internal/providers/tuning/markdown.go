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

package tuning

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// Markdown is docs/tuning.md: the table of keys with what a user has to know around it.
func Markdown() string {
	b := &strings.Builder{}
	b.WriteString(intro)
	b.WriteString("\n| Key | Unit | Default | Bounds | Default from | What it does |\n|---|---|---|---|---|---|\n")
	defaults := Defaults()
	for _, k := range keys {
		option := "-"
		if k.option != "" {
			option = "`" + k.option + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.name, k.unit, k.show(&defaults), k.bounds, option, k.doc)
	}
	classes := lo.Map(bizfly.Classes(), func(class bizfly.Class, _ int) string { return "`" + string(class) + "`" })
	slices.Sort(classes)
	fmt.Fprintf(b, outro, strings.Join(classes, ", "))
	return b.String()
}

// show is the value for people.
func (k key) show(v *Values) string {
	if k.text != "" {
		return k.text
	}
	switch value := k.value(v).(type) {
	case *time.Duration:
		return short(*value)
	case *float64:
		return fmt.Sprint(*value)
	}
	return ""
}

const intro = `<!-- Written by make generate from internal/providers/tuning. -->

# Tuning

Without it everything works; with it you change times, prices, flavors and error patterns **while the controller runs**: a
change is in force within about five seconds, on every replica, without a restart and without a lost request.

Put the keys into one ConfigMap in the controller's namespace, and name it in the ProviderConfig:

` + "```yaml" + `
apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + DefaultConfigMapName + `
  namespace: karpenter
data:
  unavailableOfferingTTL: 10m
  flavorOverrides: |
    p2.8c_16g: {hidden: true}
  errorPatterns: |
    - {pattern: "no free host", class: Capacity}
---
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: ProviderConfig
metadata:
  name: default
spec:
  tuningConfigMapRef:
    name: ` + DefaultConfigMapName + `
` + "```" + `

The name is the one that the controller's Role grants (` + "`TUNING_CONFIGMAP_NAME`" + `): any other is refused with the reason
` + "`ConfigMapForbidden`" + `.

- Every key is optional. Its default is what the option of the controller says, where there is one; removing the key, the
  ConfigMap or the reference goes back to it.
- A key that does not exist, or a value that cannot be used, is **ignored as if it were not there**: the ProviderConfig gets a
  warning event that names key, value and bounds, and its condition ` + "`TuningReady`" + ` lists it. The other keys apply. In
  ` + "`flavorOverrides`" + ` and ` + "`errorPatterns`" + ` only the entry that is wrong is ignored.
- While the ConfigMap cannot be read, what is in force stays.

## Keys
`

const outro = `
Durations are written like ` + "`90s`" + `, ` + "`10m`" + ` or ` + "`1h30m`" + `. Values of a ConfigMap are strings: quote numbers (` + "`vmMemoryOverheadPercent: \"7.5\"`" + `).

**What cannot be tuned.** ` + "`LAUNCH_TIMEOUT`" + `, how long a NodeClaim may be without the id of its server, is an option of the
controller and needs a restart: Karpenter core reads it without a lock. ` + "`garbageCollectionGrace`" + ` must be longer. Endpoint,
credentials and rate limits are fields of the ProviderConfig itself.

## Flavor overrides

By the flavor's name, whatever of these the cloud does not say or says wrongly:

| Field | Meaning |
|---|---|
| ` + "`hidden`" + ` | Launch no more servers of this flavor. Nodes that run on it are neither drifted nor drained for it. |
| ` + "`category`" + ` | The category in which its servers are ordered and priced. |
| ` + "`generation`" + ` | The code of its hardware generation, for labels and price. |
| ` + "`cpuVendor`" + ` | The vendor of its CPUs. |
| ` + "`gpuName`" + ` | The model of its GPUs, for labels and price. |
| ` + "`gpuCount`" + ` | The number of its GPUs; 0 says that it has none. |

A name that the cloud does not list is written to the log. Nodes keep the labels that they were launched with.

## Error patterns

Each has a ` + "`pattern`" + ` and the ` + "`class`" + ` that a message of the cloud which it matches belongs to: %s.
` + "`Capacity`" + ` makes the offering unavailable for a while and tries the next; ` + "`Quota`" + ` and ` + "`Balance`" + ` pause all launches;
` + "`Invalid`" + `, ` + "`Permission`" + ` and ` + "`Conflict`" + ` are reported on the NodeClaim. That something does not exist is never decided by a
pattern.
`
