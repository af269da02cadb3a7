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

| reason | type | object | what it means | what to do |
| --- | --- | --- | --- | --- |
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
	page.WriteString(eventRows(eventDocs))
	page.WriteString(coreEventsIntroduction)
	page.WriteString(eventRows(coreEventDocs))
	return page.String(), nil
}

func eventRows(docs []eventDoc) string {
	return strings.Join(lo.Map(docs, func(d eventDoc, _ int) string {
		reasons := strings.Join(lo.Map(strings.Split(d.Reason, ", "), code), ", ")
		return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", reasons, lo.Ternary(d.Warning, "Warning", "Normal"), d.Object, d.Meaning, d.Remedy)
	}), "")
}
