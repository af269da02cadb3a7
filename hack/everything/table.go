// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The file that says what is known of each check.
const tableFile = "hack/everything/checks.yaml"

// When .ci/run runs a check.
const (
	// Always: in each run, in the order of the table.
	Always = "always"
	// Rotates: as long as there is time left; see Order.
	Rotates = "rotates"
)

// Check is one call of make.
type Check struct {
	// Name is the target of make, or, of a part of one, a name of its own.
	Name string `json:"name"`
	// Seconds is what it took on 2 cores, after everything above it in the table.
	Seconds int `json:"seconds"`
	// CI is when .ci/run runs it: Always, Rotates, or empty for not at all.
	CI string `json:"ci,omitempty"`
	// Make are the arguments of make where they are more than the name.
	Make []string `json:"make,omitempty"`
	// PartOf is the check that this one is a part of: make everything runs that one instead.
	PartOf string `json:"partOf,omitempty"`
	// Beside says that .ci/run starts it together with the check below it, since it waits more than it computes.
	Beside bool `json:"beside,omitempty"`
	// Needs are what a machine must have: a command, root, or an address that answers.
	Needs []string `json:"needs,omitempty"`
	// Paths are beginnings of the paths of those files whose change calls for it.
	Paths []string `json:"paths,omitempty"`
}

// Arguments are those of make.
func (c Check) Arguments() []string {
	if len(c.Make) == 0 {
		return []string{c.Name}
	}
	return c.Make
}

// Target is the target of make that it runs.
func (c Check) Target() string {
	for _, argument := range c.Arguments() {
		if !strings.HasPrefix(argument, "-") && !strings.Contains(argument, "=") {
			return argument
		}
	}
	return ""
}

// Table is the contents of the file.
type Table struct {
	Checks []Check `json:"checks"`
	// Others are the targets of make that check nothing, with the reason.
	Others map[string]string `json:"others"`
	// Commands are the beginnings of those commands of workflows that check nothing, with the reason.
	Commands map[string]string `json:"commands"`
}

// ReadTable reads the table of a repository.
func ReadTable(root string) (Table, error) {
	var table Table
	text, err := os.ReadFile(filepath.Join(root, tableFile)) //nolint:gosec // a file of the repository
	if err == nil {
		err = yaml.UnmarshalStrict(text, &table)
	}
	if err != nil {
		return table, fmt.Errorf("reading %s: %w", tableFile, err)
	}
	return table, nil
}

// Has reports whether there is a check of a name.
func (t Table) Has(name string) bool {
	return slices.ContainsFunc(t.Checks, func(c Check) bool { return c.Name == name })
}

// Everything are the checks that make everything runs: those of the table, and those that only workflows name.
func (t Table) Everything(targets []string) []Check {
	var checks []Check
	for _, check := range t.Checks {
		if check.PartOf == "" {
			checks = append(checks, check)
		}
	}
	for _, target := range targets {
		if !t.Has(target) {
			checks = append(checks, Check{Name: target})
		}
	}
	return checks
}

// InCI are the checks that .ci/run runs at a time.
func (t Table) InCI(when string) []Check {
	return slices.DeleteFunc(slices.Clone(t.Checks), func(c Check) bool { return c.CI != when })
}
