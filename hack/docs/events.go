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

Look up the reason of an event. Reasons do not change between versions. ` + "`kubectl describe nodeclaim`" + ` shows the events of one node,
` + "`kubectl get events -A --field-selector source=karpenter --sort-by=.lastTimestamp`" + ` all.
Most events are repeated every two minutes at most, some each minute, hour or day. Those without *normal* are warnings.
`

const coreEventsIntroduction = `
## Karpenter's own

The most important ones:

| reason | object | meaning, and what to do |
| --- | --- | --- |
`

// eventsPage is the page of everything that is published as an event.
func eventsPage() (string, error) {
	page := &strings.Builder{}
	page.WriteString(eventsIntroduction)
	object := func(d eventDoc) string { return d.Object }
	byObject := lo.GroupBy(eventDocs, object)
	// As they are first needed in a node's life: lo.UniqMap would give them in any order.
	for _, first := range lo.UniqBy(eventDocs, object) {
		page.WriteString("\n## On " + first.Object + "\n\n| reason | meaning, and what to do |\n| --- | --- |\n")
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
	if !d.Warning {
		reasons += ", *normal*"
	}
	return fmt.Sprintf("| %s%s | %s |\n", reasons, object, strings.TrimSpace(d.Meaning+" "+lo.Ternary(d.Remedy == nothing, "", d.Remedy)))
}
