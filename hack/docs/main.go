// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs writes what is made from the code: docs <page> prints one page of docs/, docs catalog the catalog of the kubectl plugin.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// pages are what can be printed, by the name of the file in docs/ without its ending.
var pages = map[string]func() (string, error){
	"reference/bootstrap":     bootstrapPage,
	"reference/compatibility": compatibilityPage,
	"reference/events":        eventsPage,
	"reference/flavors":       flavorsPage,
	"reference/metrics":       metricsPage,
	"reference/options":       optionsPage,
	"reference/fields":        referencePage,
}

func main() {
	text, err := page(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func page(args []string) (string, error) {
	if len(args) == 1 && args[0] == "catalog" {
		text, err := embeddedCatalog()
		return text + "\n", err
	}
	if len(args) == 1 {
		if write, ok := pages[args[0]]; ok {
			text, err := write()
			return strings.TrimRight(text, "\n") + "\n", err
		}
	}
	return "", fmt.Errorf("usage: docs <page>, one of %s", strings.Join(slices.Sorted(maps.Keys(pages)), ", "))
}
