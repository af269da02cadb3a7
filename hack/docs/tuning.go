// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// tuningTable writes a row for each key of the tuning ConfigMap, with the option that has its default.
func tuningTable(b *strings.Builder) {
	b.WriteString("| key and option | default | bounds | |\n| --- | --- | --- | --- |\n")
	for _, s := range options.Table() {
		if s.Key == "" {
			continue
		}
		name := "`" + s.Key + "`" + lo.Ternary(s.Variable == "", "", ", `"+s.Variable+"`")
		value := lo.CoalesceOrEmpty(s.Default, lo.Ternary(s.Key == "prices", "the built-in table", "none"))
		bounds := lo.Ternary(s.Unit == "duration", "", s.Unit+": ") + s.Bounds
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, value, bounds, s.Doc)
	}
}

const tuningIntroduction = `
## Tuning keys

Put keys into one ConfigMap in the controller's namespace, and name it in the ProviderConfig. A change is active within about five seconds,
on every replica. A new ` + "`catalogInterval`" + ` or ` + "`garbageCollectionInterval`" + ` counts after the present one has
ended. The name is the one that the controller's Role grants (` + "`TUNING_CONFIGMAP_NAME`" + `).

` + "```yaml" + `
apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + options.DefaultTuningConfigMapName + `
  namespace: karpenter
data:
  unavailableOfferingTTL: 10m
  hiddenFlavors: p2.8c_16g
---
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: ProviderConfig
metadata:
  name: default
spec:
  tuningConfigMapRef:
    name: ` + options.DefaultTuningConfigMapName + `
` + "```" + `

- **To go back to a default**, remove the key; to all defaults, remove the ConfigMap's ` + "`data`" + ` or ` + "`spec.tuningConfigMapRef`" + `.
  Deleting the ConfigMap is not enough.
- **An invalid value keeps the last valid value of its key**, also after a restart. The event ` + "`TuningIgnored`" + ` names key, value and bounds. A
  key that never had a valid value uses its default.
- **A ConfigMap that is missing or cannot be read changes nothing**: the condition ` + "`TuningReady`" + ` reports it.

`

const tuningDetails = `
Values of a ConfigMap are strings: quote numbers (` + "`vmMemoryOverheadPercent: \"0.075\"`" + `). Durations are
written like ` + "`90s`" + ` or ` + "`1h30m`" + `.
`
