// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs writes the pages of docs/ that are made from the code: docs <page> prints one of them.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// pages are what can be printed, by the name of the file in docs/ without its ending, and what each is made from.
var pages = map[string]struct {
	write   func() (string, error)
	sources string
}{
	"reference/bootstrap":     {bootstrapPage, "`internal/providers/bootstrap`"},
	"reference/compatibility": {compatibilityPage, "`go.mod`, `test/controlplane/go.mod`, or `kubeVersion` of the chart"},
	"reference/events":        {eventsPage, "an event in `internal/events`, or its description in `hack/docs/events.go`"},
	"reference/flavors":       {flavorsPage, "`internal/pricing/table.yaml`, or the flavors of `test/sandbox`"},
	"reference/metrics":       {metricsPage, "a metric, or the description of a label in `hack/docs/metrics.go`"},
	"reference/options":       {optionsPage, "`internal/options`"},
	"reference/fields":        {referencePage, "`pkg/apis/v1alpha1`, or the tables in `hack/docs/reference.go`"},
	"reference/tuning":        {tuningPage, "`internal/options`"},
}

// owner is the last section of every page. Nothing is changed by hand in a generated one.
const owner = `
## What to change here when you change X

| you change | change here |
| --- | --- |
| %s | nothing by hand: run ` + "`make generate`" + ` |
`

func main() {
	text, err := page(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func page(args []string) (string, error) {
	if len(args) == 1 {
		if p, ok := pages[args[0]]; ok {
			text, err := p.write()
			return strings.TrimRight(text, "\n") + "\n" + fmt.Sprintf(owner, p.sources), err
		}
	}
	return "", fmt.Errorf("usage: docs <page>, one of %s", strings.Join(slices.Sorted(maps.Keys(pages)), ", "))
}
