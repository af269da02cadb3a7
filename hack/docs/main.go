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

// Command docs writes the pages of docs/ that are made from the code: docs <page> prints one of them.
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
	"reference/metrics":       metricsPage,
	"reference/options":       optionsPage,
	"reference/fields":        referencePage,
	"reference/tuning":        tuningPage,
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
	if len(args) == 1 {
		if write, ok := pages[args[0]]; ok {
			return write()
		}
	}
	return "", fmt.Errorf("usage: docs <page>, one of %s", strings.Join(slices.Sorted(maps.Keys(pages)), ", "))
}
