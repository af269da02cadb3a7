// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// State is what a run of everything has found so far.
type State struct {
	Results map[string]Result `json:"results"`
}

// ReadState reads the state in a file; where there is none, nothing has run.
func ReadState(path string) (State, error) {
	var state State
	text, err := os.ReadFile(path) //nolint:gosec // below .cache
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return State{}, fmt.Errorf("reading the state (delete the file to begin anew): %s: %w", path, err)
	}
	return state, nil
}

// Write replaces the state in a file, so that an interruption leaves the old one or the new one.
func (s State) Write(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // logs are for everyone
	}
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return nil
}

// Selection is what the user asks for.
type Selection struct {
	// Only are the names of the checks to run, From is the first one.
	Only []string
	From string
	// Continue keeps what has passed, also of other sources: what failed runs again.
	Continue bool
}

// Select returns the checks to run, and the results of earlier ones that still count. An interrupted run of the same sources goes on
// where it stopped.
func Select(checks []Check, earlier map[string]Result, tree string, asked Selection) (run []Check, kept map[string]Result, err error) {
	kept = map[string]Result{}
	for name, result := range earlier {
		if result.Tree == tree || asked.Continue {
			kept[name] = result
		}
	}
	index := func(name string) int { return slices.IndexFunc(checks, func(c Check) bool { return c.Name == name }) }
	for _, name := range append(slices.Clone(asked.Only), asked.From) {
		if name != "" && index(name) < 0 {
			return nil, nil, fmt.Errorf("%q is not a check: see `make everything-list`", name)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return kept[c.Name].Outcome != "" })
	switch {
	case len(asked.Only) > 0:
		run = slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return !slices.Contains(asked.Only, c.Name) })
	case asked.From != "":
		run = checks[index(asked.From):]
	case asked.Continue:
		run = slices.DeleteFunc(slices.Clone(checks), func(c Check) bool {
			return kept[c.Name].Outcome == passed || kept[c.Name].Outcome == skipped
		})
	case len(missing) > 0:
		run = missing
	default:
		run = checks
	}
	for _, check := range run {
		delete(kept, check.Name)
	}
	return run, kept, nil
}
