// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs prints a page of docs/ with its tables as the code has them (docs reference/options), or the catalog of the kubectl plugin
// (docs catalog). A table stands between two comments, of which the first names it; everything else of a page is written by hand.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// tables are what is made from the code, by name.
var tables = map[string]func() (string, error){
	"fields":           fieldTables,
	"flavors":          flavorTable,
	"Karpenter":        coreOptionList,
	"metrics":          metricTable,
	"modes":            modeTable,
	"options":          optionTable,
	"secret variables": secretTable,
	"tuning keys":      tuningTable,
	"versions":         versionTable,
}

// written is a table with the comments around it.
var written = regexp.MustCompile(`(?s)<!-- make generate writes this: ([\w ]+) -->\n.*?<!-- the end of what make generate writes -->\n`)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docs reference/<page> | contribute/sandbox | catalog")
		os.Exit(2)
	}
	text, err := output(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func output(name string) (string, error) {
	if name == "catalog" {
		return embeddedCatalog()
	}
	page, err := read("docs", name+".md")
	if err != nil {
		return "", err
	}
	result := written.ReplaceAllStringFunc(page, func(block string) string {
		table := written.FindStringSubmatch(block)[1]
		write, known := tables[table]
		if !known {
			err = fmt.Errorf("%s.md wants a table %q, which is not made from the code", name, table)
			return ""
		}
		text, failed := write()
		err = lo.CoalesceOrEmpty(err, failed)
		return "<!-- make generate writes this: " + table + " -->\n\n" + strings.TrimSpace(text) + "\n\n<!-- the end of what make generate writes -->\n"
	})
	return result, err
}

// read reads a file of the repository, in whose folder or below this runs.
func read(path ...string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	text, err := os.ReadFile(filepath.Join(append([]string{dir}, path...)...))
	return string(text), err
}

// embeddedCatalog is the catalog with which the kubectl plugin plans without credentials: what the sandbox answers for the region HN, in the
// API's own form. The page of flavors has the same flavors.
func embeddedCatalog() (string, error) {
	c := cloud.DefaultCatalog()
	region, _ := lo.Find(c.Regions, func(r cloud.Region) bool { return r.ShortName == cloud.RegionHN })
	encoded, err := json.MarshalIndent(map[string]any{
		"region": region, "flavors": c.Flavors[cloud.RegionHN], "volume_types": c.VolumeTypes[cloud.RegionHN],
	}, "", " ")
	return string(encoded) + "\n", err
}

// modeTable has the modes of the sandbox.
func modeTable() (string, error) {
	table := row("mode", "what the cloud does") + row("---", "---")
	for _, m := range cloud.Modes {
		table += row(code(m.Name), m.What)
	}
	return table, nil
}

// row is a line of a table.
func row(cells ...string) string {
	line := strings.Join(lo.Map(cells, func(text string, _ int) string { return strings.ReplaceAll(text, "|", `\|`) }), " | ")
	return strings.Join(strings.Fields("| "+line+" |"), " ") + "\n"
}

func code(text string) string { return "`" + text + "`" }
