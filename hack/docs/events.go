// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
)

const eventsIntroduction = `# Events

<!-- Written by make generate. -->

Every decision about a node is reported as an event on the object that it is about, with a reason that does not change
between versions. ` + "`kubectl describe nodeclaim`" + ` shows those of one node, and
` + "`kubectl get events -A --field-selector source=karpenter --sort-by=.lastTimestamp`" + ` all of them.

The same event about the same object is published at most every two minutes, some of them less often. The log has one line
for each launch and each removal beside: [monitoring](../operate/monitoring.md).
`

const coreEventsIntroduction = `
## Karpenter's own

Karpenter itself reports the rest of a node's life. Its most important events:

| reason | type | object | what it means | what to do |
| --- | --- | --- | --- | --- |
`

// eventsPage is the page of everything that is published as an event.
func eventsPage() (string, error) {
	page := &strings.Builder{}
	page.WriteString(eventsIntroduction)
	object := func(d eventDoc) string { return d.Object }
	byObject := lo.GroupBy(eventDocs, object)
	// As they are first needed in a node's life: lo.UniqMap would give them in any order.
	for _, first := range lo.UniqBy(eventDocs, object) {
		page.WriteString("\n## On " + first.Object + "\n\n| reason | type | what it means | what to do |\n| --- | --- | --- | --- |\n")
		for _, d := range byObject[first.Object] {
			page.WriteString(eventRow(d, ""))
		}
	}
	page.WriteString(coreEventsIntroduction)
	for _, d := range coreEventDocs {
		page.WriteString(eventRow(d, " | "+d.Object))
	}
	return page.String(), nil
}

// eventRow is the row of an event, with the object that it is about where the table has them.
func eventRow(d eventDoc, object string) string {
	reasons := strings.Join(lo.Map(strings.Split(d.Reason, ", "), code), ", ")
	return fmt.Sprintf("| %s | %s%s | %s | %s |\n", reasons, lo.Ternary(d.Warning, "Warning", "Normal"), object, d.Meaning, d.Remedy)
}
