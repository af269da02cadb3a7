// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands of the documentation against a real control plane and the sandbox, and compares what they
// print with what the pages show.
package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// block is a fenced block of a page.
type block struct {
	// line is the number of its first line of content, from 1.
	line int
	// language is the first word behind the fence, marks are the others.
	language string
	marks    []string
	indent   string
	text     string
	// e2e is the name in the comment above it, by which test/e2e/install runs it.
	e2e string
	// section is what a comment names instead of a block: a page and a heading of it, whose commands are run here.
	section string
}

func (b block) marked(mark string) bool { return slices.Contains(b.marks, mark) }

// A page marks its blocks behind the fence:
//
//	sh run       is run here; the block "text output" that follows shows what it prints
//	sh real-cloud, sh elsewhere  need the real cloud, or another cluster or machine, and are only parsed
//	sh           is below <!-- e2e: name -->, and test/e2e/install runs it
//	yaml run     is applied here
//	yaml         is applied with --dry-run=server if it is a Kubernetes object, unless it is marked elsewhere
//
// The comment <!-- run: page.md#heading --> runs the commands of another page's section, as a page does that refers to it.
const (
	run       = "run"
	output    = "output"
	elsewhere = "elsewhere"
	realCloud = "real-cloud"
)

const root = "../../.."

// page is a page with its blocks.
type page struct {
	path    string
	lines   []string
	blocks  []block
	fixture string
	// indented are the numbers of lines that are code by their indentation alone.
	indented []int
}

var (
	fence       = regexp.MustCompile("^( *)(`{3,})(.*)$")
	fixtureLine = regexp.MustCompile(`(?m)^cluster: ([\w-]+)$`)
	e2eLine     = regexp.MustCompile(`^ *<!-- e2e: (.*) -->$`)
	inList      = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	sectionLine = regexp.MustCompile(`^ *<!-- run: (.*) -->$`)
)

// unmarkable names the clusters of pages whose first line readers on GitHub would see as a table.
var unmarkable = map[string]string{"README.md": "new", "README.vi.md": "new"}

// readPage reads a page. Its front matter may name the cluster that its commands find: see fixtures.
func readPage(path string) (*page, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a page of ours
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	p := &page{path: path, fixture: fixtureOf(path, string(content))}
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, 1<<20)
	var open *block
	var closing, e2e, before string
	list := false
	for scanner.Scan() {
		line := scanner.Text()
		p.lines = append(p.lines, line)
		match := fence.FindStringSubmatch(line)
		switch {
		case open != nil && strings.TrimSpace(line) == closing:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, open.indent) + "\n"
		case match != nil:
			words := append(strings.Fields(match[3]), "")
			open = &block{line: len(p.lines) + 1, language: words[0], marks: words[1:], indent: match[1], e2e: e2e}
			closing, e2e = match[2], ""
		case e2eLine.MatchString(line):
			e2e = e2eLine.FindStringSubmatch(line)[1]
		case sectionLine.MatchString(line):
			p.blocks = append(p.blocks, block{line: len(p.lines), section: sectionLine.FindStringSubmatch(line)[1]})
		case strings.HasPrefix(line, "    ") && strings.TrimSpace(before) == "" && !list:
			p.indented = append(p.indented, len(p.lines))
		case strings.TrimLeft(line, " ") != "" && !strings.HasPrefix(line, " "), inList.MatchString(line):
			list = inList.MatchString(line)
		}
		before = line
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block does not end", path, open.line)
	}
	return p, scanner.Err()
}

// fixtureOf returns the name of the cluster that the commands of a page find.
func fixtureOf(path, content string) string {
	if front, _, found := strings.Cut(strings.TrimPrefix(content, "---\n"), "\n---\n"); found && strings.HasPrefix(content, "---\n") {
		if match := fixtureLine.FindStringSubmatch(front); match != nil {
			return match[1]
		}
	}
	if filepath.Clean(filepath.Dir(path)) == root {
		return unmarkable[filepath.Base(path)]
	}
	return ""
}

// section returns the commands of a section that are run.
func (p *page) section(anchor string) []block {
	level, inside, fenced := "", false, false
	var blocks []block
	for i, line := range p.lines {
		fenced = fenced != fence.MatchString(line)
		if marks, heading, ok := strings.Cut(line, " "); ok && !fenced && strings.Trim(marks, "#") == "" && marks != "" {
			if inside && len(marks) <= len(level) {
				break
			}
			if !inside {
				level, inside = marks, slug(heading) == anchor
			}
		}
		for _, b := range p.blocks {
			if inside && b.line == i+2 && (b.language == "sh" || b.language == "yaml") && b.marked(run) {
				blocks = append(blocks, b)
			}
		}
	}
	return blocks
}

var unslugged = regexp.MustCompile(`[^a-z0-9 _-]`)

// slug is the anchor that GitHub makes of a heading.
func slug(heading string) string {
	return strings.ReplaceAll(unslugged.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// expected is the index of the block that shows what the block at this index prints, or -1.
func (p *page) expected(index int) int {
	if index+1 < len(p.blocks) && p.blocks[index+1].language == "text" && p.blocks[index+1].marked(output) {
		return index + 1
	}
	return -1
}

// show puts a text into a block, and the lines of the blocks behind it where they are then.
func (p *page) show(index int, text string) {
	b := &p.blocks[index]
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(b.indent+strings.TrimRight(line, "\n"), " "))
	}
	before := strings.Count(b.text, "\n")
	p.lines = slices.Replace(p.lines, b.line-1, b.line-1+before, lines...)
	for i := index + 1; i < len(p.blocks); i++ {
		p.blocks[i].line += len(lines) - before
	}
	b.text = text
}

func (p *page) write() error {
	return os.WriteFile(p.path, []byte(strings.Join(p.lines, "\n")+"\n"), 0o644) //nolint:gosec // a source file
}

// variable parts of an output, which differ from run to run, and what stands for them in a comparison.
var variable = []struct {
	pattern *regexp.Regexp
	stands  string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\b[0-9a-f]{24}\b`), "<pool id>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?`), "<time>"},
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? .*\d{4}\b.*`), "<time>"},
	{regexp.MustCompile(`https?://(\d{1,3}\.){3}\d{1,3}:\d+`), "<address>"},
	{regexp.MustCompile(`\b(\d{1,3}\.){3}\d{1,3}(:\d+)?\b`), "<address>"},
	// Names that Karpenter and Kubernetes generate, and our servers' names, which end in a code. A root disk's name continues with
	// an underscore, which is a letter to \b.
	{regexp.MustCompile(`\b([a-z][a-z0-9-]*?)-[a-z0-9]{5}-[a-z0-9]{16,20}(_|\b)`), "$1-<id>$2"},
	{regexp.MustCompile(`\b([a-z][a-z0-9-]*?)-[a-f0-9]{8,10}-[a-z0-9]{5}\b`), "$1-<id>"},
	{regexp.MustCompile(`\b(default|gpu|burst|batch|general|kubeadm)-[a-z0-9]{5}\b`), "$1-<id>"},
	{regexp.MustCompile(`\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b|\b\d+[dhm]\b|<unknown>`), "<age>"},
	{regexp.MustCompile(`\bv\d+\.\d+\.\d+[-+.\w]*|\b[0-9a-f]{7}(-dirty)?\b`), "<version>"},
}

var spaces = regexp.MustCompile(`[ \t]+`)

// normalized is an output without what differs from run to run: ids, ages, times, the width of columns and the order of lines,
// which is that of generated names.
func normalized(text string) []string {
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.stands)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(spaces.ReplaceAllString(line, " ")); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
