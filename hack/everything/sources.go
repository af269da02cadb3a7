// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// notInCI begins the reason in the help of a check that neither a workflow nor .ci/run runs.
const notInCI = "not in CI: "

// Commands are those of the scripts of all workflows and of the actions of this repository, one line of a script each.
func Commands(root string) ([]string, error) {
	var commands []string
	for _, pattern := range []string{".github/workflows/*.y*ml", ".github/actions/*/action.y*ml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, fmt.Errorf("listing workflows: %w", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
			var content any
			if err == nil {
				err = yaml.Unmarshal(text, &content)
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			commands = append(commands, scripts(content)...)
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands), nil
}

// scripts returns the commands of every script below a value of a workflow.
func scripts(value any) []string {
	var commands []string
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			commands = append(commands, scripts(item)...)
		}
	case map[string]any:
		for key, item := range value {
			script, ok := item.(string)
			if key != "run" || !ok {
				commands = append(commands, scripts(item)...)
				continue
			}
			commands = append(commands, split(script)...)
		}
	}
	return commands
}

var (
	// A command ends where the line does, and where the shell begins another one.
	separators = regexp.MustCompile(`\n|;|&&|\|\|?|\$\(|[(){}]`)
	// What may stand before a command: variables, and those that start another one.
	prefixes = regexp.MustCompile(`^(?:(?:if|then|else|do|!|sudo|env|exec|time|-E|[A-Za-z_]+=\S*|"[A-Za-z_]+=[^"]*")\s+)+`)
	// A target of make and its help.
	targets = regexp.MustCompile(`(?m)^([a-z0-9][a-z0-9-]*):.*?## (.*)$`)
	// The beginnings of commands that can be a check of this repository.
	programs = regexp.MustCompile(`^(?:(?:go|npm|npx|node|python3?|bash|sh)\s|(?:\./|hack/|test/|\.ci/|\.cache/)\S)`)
)

func split(script string) []string {
	var commands []string
	// Arithmetic would be taken apart.
	script = regexp.MustCompile(`\$\(\(.*?\)\)`).ReplaceAllString(strings.ReplaceAll(script, "\\\n", " "), "0")
	for _, command := range separators.Split(script, -1) {
		command = prefixes.ReplaceAllString(strings.TrimSpace(command), "")
		if command != "" && !strings.HasPrefix(command, "#") {
			commands = append(commands, command)
		}
	}
	return commands
}

// Targets are the targets of make among commands.
func Targets(commands []string) []string {
	var found []string
	for _, command := range commands {
		arguments, ok := strings.CutPrefix(command, "make ")
		if !ok {
			continue
		}
		for _, argument := range strings.Fields(arguments) {
			if !strings.HasPrefix(argument, "-") && !strings.Contains(argument, "=") {
				found = append(found, argument)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Help is what the Makefile says of each of its targets.
func Help(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile")) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, fmt.Errorf("reading the Makefile: %w", err)
	}
	help := map[string]string{}
	for _, match := range targets.FindAllStringSubmatch(string(text), -1) {
		help[match[1]] = match[2]
	}
	return help, nil
}

// Gaps are what keeps a check out of make everything, or its reason from its reader.
func Gaps(table Table, commands []string, help map[string]string) []string {
	gaps := slices.Concat(workflowGaps(table, commands), helpGaps(table, Targets(commands), help))
	slices.Sort(gaps)
	return gaps
}

func workflowGaps(table Table, commands []string) (gaps []string) {
	gap := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	for _, target := range Targets(commands) {
		if !table.Has(target) {
			gap("a workflow runs `make %s`, which is no check of %s: add it there", target, tableFile)
		}
	}
	for _, command := range commands {
		if programs.MatchString(command) && !hasPrefix(command, table.Commands) {
			gap("a workflow runs `%s` without make: make it a target and a check, or give its reason in `commands` of %s", command, tableFile)
		}
	}
	return gaps
}

func helpGaps(table Table, workflows []string, help map[string]string) (gaps []string) {
	gap := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	inCI := map[string]bool{}
	for _, check := range table.Checks {
		inCI[check.Target()] = inCI[check.Target()] || check.CI != ""
	}
	for target, text := range help {
		isCheck := table.Has(target)
		_, isOther := table.Others[target]
		switch {
		case isCheck == isOther:
			gap("`make %s` must be either a check or one of `others` in %s", target, tableFile)
		case isCheck && !inCI[target] && !slices.Contains(workflows, target) && !strings.Contains(text, notInCI):
			gap("neither a workflow nor .ci/run runs `make %s`: its help must have the reason (%q)", target, notInCI+"...")
		}
	}
	for _, check := range table.Checks {
		if _, ok := help[check.Target()]; !ok {
			gap("the check %s of %s runs `make %s`, which the Makefile does not list", check.Name, tableFile, check.Target())
		}
	}
	for other := range table.Others {
		if _, ok := help[other]; !ok {
			gap("`others` of %s has %s, which the Makefile does not list", tableFile, other)
		}
	}
	return gaps
}

func hasPrefix(command string, prefixes map[string]string) bool {
	for prefix := range prefixes {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}
