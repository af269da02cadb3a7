// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// tuningPage is the page of the keys of the tuning ConfigMap.
func tuningPage() (string, error) {
	b := &strings.Builder{}
	b.WriteString(tuningIntroduction)
	b.WriteString("\n| Key | Unit | Default | Bounds | Default from | What it does |\n|---|---|---|---|---|---|\n")
	for _, s := range options.Table() {
		if s.Key == "" {
			continue
		}
		option := lo.Ternary(s.Variable == "", "-", "`"+s.Variable+"`")
		value := lo.CoalesceOrEmpty(s.Default, lo.Ternary(s.Key == "prices", "the built-in table", "none"))
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Key, s.Unit, value, s.Bounds, option, s.Doc)
	}
	b.WriteString(tuningDetails)
	return b.String(), nil
}

const tuningIntroduction = `<!-- Written by make generate from internal/options. -->

# Tuning

You can change times, prices and flavors **while the controller runs**. A change is active within about five
seconds, on every replica, without a restart. Nothing here is required.

Put the keys into one ConfigMap in the controller's namespace, and name it in the ProviderConfig:

` + "```yaml" + `
apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + options.DefaultTuningConfigMapName + `
  namespace: karpenter
data:
  unavailableOfferingTTL: 10m
  flavorOverrides: |
    p2.8c_16g: {hidden: true}
---
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: ProviderConfig
metadata:
  name: default
spec:
  tuningConfigMapRef:
    name: ` + options.DefaultTuningConfigMapName + `
` + "```" + `

The name is the one that the controller's Role grants (` + "`TUNING_CONFIGMAP_NAME`" + `): any other is rejected with the reason
` + "`ConfigMapForbidden`" + `.

- Every key is optional. Its default is the value of the controller's option, where there is one.
- **To go back to a default**, remove the key. To go back to all defaults, empty the ConfigMap (remove its ` + "`data`" + `) or
  remove ` + "`spec.tuningConfigMapRef`" + ` from the ProviderConfig. Deleting the ConfigMap is not enough.
- **An invalid value keeps the last valid value of its key**, and the other keys apply. The ProviderConfig gets the warning event
  ` + "`TuningIgnored`" + ` that names key, value and bounds, and its condition ` + "`TuningReady`" + ` lists it. This holds after a restart as well: the
  ProviderConfig keeps the active keys in ` + "`status.tuning`" + `. Only a key that never had a valid value uses its default; of
  ` + "`flavorOverrides`" + ` the valid entries then apply.
- **A ConfigMap that is missing or cannot be read changes nothing**: the active values stay, and ` + "`TuningReady`" + ` is false with the
  reason ` + "`ConfigMapNotFound`" + `, ` + "`ConfigMapForbidden`" + ` or ` + "`ConfigMapUnreadable`" + `. A ConfigMap that was deleted by
  mistake therefore never changes prices or flavors.

## Keys
`

const tuningDetails = `
Durations are written like ` + "`90s`" + `, ` + "`10m`" + ` or ` + "`1h30m`" + `. Values of a ConfigMap are strings: quote numbers
(` + "`vmMemoryOverheadPercent: \"0.075\"`" + `).

**What cannot be tuned.** ` + "`LAUNCH_TIMEOUT`" + `, how long a NodeClaim may be without the id of its server, is an option of the
controller and needs a restart: Karpenter core reads it without a lock. ` + "`garbageCollectionGrace`" + ` must be longer. Endpoint,
credentials and rate limits are fields of the ProviderConfig itself.

## Flavor overrides

By the flavor's name, the fields that BizFly Cloud leaves out or reports wrongly:

| Field | Meaning |
|---|---|
| ` + "`hidden`" + ` | Launch no more servers of this flavor. Nodes that run on it are neither drifted nor drained for it. |
| ` + "`category`" + ` | The category in which its servers are launched and priced. |
| ` + "`generation`" + ` | The code of its hardware generation, for labels and price. |
| ` + "`cpuVendor`" + ` | The vendor of its CPUs. |
| ` + "`gpuName`" + ` | The model of its GPUs, for labels and price. |
| ` + "`gpuCount`" + ` | The number of its GPUs; 0 means that it has none. |

A name that the cloud does not list is written to the log. Nodes keep the labels that they were launched with.
`
