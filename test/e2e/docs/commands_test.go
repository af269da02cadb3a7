// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"mvdan.cc/sh/v3/syntax"
)

// command is a command of a page or a hint, split as a shell would split it.
type command struct {
	at    string
	words []string
}

func (c command) String() string { return c.at + ": " + strings.Join(c.words, " ") }

// tools are the commands that may stand in pages without being executed, and what checks each of them. What is nil has no check
// beside the shell's; curl is not here, so that it is executed.
var tools = map[string]func(command) error{
	"bizfly": parseBizfly, "kubectl": parseKubectl, "helm": parseHelm,
	"make": nil, // of which another spec checks the targets
	"go":   parseGo, "git": nil, "docker": nil, "cosign": nil, "gh": nil, "sha256sum": nil, "hack/verify.sh": nil,
	"sudo": nil, // on a node, whose commands this machine does not have
	"cd":   nil, ".": nil, "grep": nil, "sed": nil, "xargs": nil, "id": nil, "read": nil, "printf": nil,
}

// unknown stands for what only a run knows: a number, so that it may be the value of any flag.
const unknown = "1"

// commands are the commands of a script, also those in loops, in pipes and behind xargs.
func commands(at, script string) ([]command, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	var found []command
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		c := command{at: at}
		for _, word := range call.Args {
			c.words = append(c.words, text(word.Parts))
		}
		found = append(found, c)
		if c.words[0] == "xargs" {
			if i := slices.IndexFunc(c.words, func(word string) bool { return tools[word] != nil || word == "curl" }); i > 0 {
				found = append(found, command{at: at, words: c.words[i:]})
			}
		}
		return true
	})
	return found, nil
}

var escaped = regexp.MustCompile(`\\(.)`)

// text is what a shell makes of a word.
func text(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(escaped.ReplaceAllString(p.Value, "$1"))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(text(p.Parts))
		default:
			b.WriteString(unknown)
		}
	}
	return b.String()
}

//go:embed testdata/bizfly.tsv
var bizflyTree string

// parseBizfly parses a command as BizFly Cloud's own command line would. That answers what it rejects with exit status 0, so that
// running it would not show a mistake.
func parseBizfly(c command) error {
	_, _, err := parsedBizfly(c)
	return err
}

// parsedBizfly is the name of such a command, and its flags and arguments.
func parsedBizfly(c command) (name string, set *flag.FlagSet, err error) {
	var arguments, flags string
	var global string
	for line := range strings.Lines(bizflyTree) {
		fields := append(strings.Split(strings.TrimRight(line, "\n"), "\t"), "", "")
		if fields[0] == "bizfly" {
			global = fields[2]
		}
		words := strings.Fields(fields[0])
		if len(words) < len(c.words) && slices.Equal(words, c.words[1:1+len(words)]) && len(fields[0]) > len(name) {
			name, arguments, flags = fields[0], fields[1], fields[2]
		}
	}
	if name == "" || arguments == "group" {
		return "", nil, errors.New("no such command")
	}
	set = flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	onlyTrue := ""
	for _, known := range strings.Fields(global + " " + flags) {
		switch known, kind, _ := strings.Cut(known, ":"); kind {
		case "bool":
			set.Bool(known, false, "")
		case "true":
			set.Bool(known, true, "")
			onlyTrue = known
		case "int":
			set.Int(known, 0, "")
		default:
			set.String(known, "", "")
		}
	}
	// No flag has a short form there, and flags may stand behind arguments.
	given, words := 0, c.words[1+len(strings.Fields(name)):]
	if short, found := lo.Find(words, regexp.MustCompile(`^-[^-]`).MatchString); found {
		return "", nil, fmt.Errorf("no such flag: %s", short)
	}
	for len(words) > 0 {
		if !strings.HasPrefix(words[0], "--") {
			words, given = words[1:], given+1
			continue
		}
		if err := set.Parse(words); err != nil {
			return "", nil, err
		}
		words = set.Args()
	}
	if on := set.Lookup(onlyTrue); on != nil && on.Value.String() == "false" {
		return "", nil, fmt.Errorf("--%s=false is not sent", onlyTrue)
	}
	if minimum, more := strings.CutSuffix(arguments, "+"); arguments != "any" {
		if n, err := strconv.Atoi(minimum); err != nil || given < n || given > n && !more {
			return "", nil, fmt.Errorf("%d arguments, not %s", given, arguments)
		}
	}
	return name, set, nil
}

// parseWith parses a command with the tool itself: with --help it knows its commands and flags, and does nothing.
func parseWith(binary string) func(command) error {
	return func(c command) error {
		words := c.words[1:]
		if i := slices.Index(words, "--"); i >= 0 {
			words = words[:i]
		}
		command := exec.Command(binary, append(slices.Clone(words), "--help")...)
		// A last flag that lacks its value takes --help for it: without a cluster, nothing happens.
		command.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull, "KUBERNETES_SERVICE_HOST=")
		said, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	}
}

// installs matches a command that needs a release and a chart; release matches those of ours, in the names that all pages use.
var (
	installs = regexp.MustCompile(`^helm (?:install|upgrade) .`)
	release  = regexp.MustCompile(`^helm (?:install|upgrade)(?: --install)? karpenter(|-crd|1) charts/karpenter-provider-bizflycloud(|-crd|1)(?: |$)`)
)

func parseHelm(c command) error {
	line := strings.Join(c.words, " ")
	if match := release.FindStringSubmatch(line); installs.MatchString(line) && (match == nil || match[1] != match[2]) {
		return errors.New("the release is karpenter of charts/karpenter-provider-bizflycloud, or karpenter-crd")
	}
	return parseWith(filepath.Join(root, ".cache/tools/helm"))(c)
}

// parseKubectl parses a command of kubectl, or of the plugin.
func parseKubectl(c command) error {
	if len(c.words) > 1 && c.words[1] == "bizfly" {
		return parseWith(filepath.Join(root, "bin/kubectl-bizfly"))(command{words: c.words[1:]})
	}
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(root, ".cache/controlplane/bin")
	}
	return parseWith(filepath.Join(assets, "kubectl"))(c)
}

// parseGo checks that what is run is a command, and that its sources name each flag.
func parseGo(c command) error {
	if len(c.words) < 3 || c.words[1] != "run" || !strings.HasPrefix(c.words[2], "./") {
		return nil
	}
	sources, _ := filepath.Glob(filepath.Join(root, strings.TrimSuffix(c.words[2], "..."), "*.go")) // only a pattern that is wrong is an error
	var text strings.Builder
	for _, path := range sources {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the command: %w", err)
		}
		text.Write(content)
	}
	if !strings.Contains(text.String(), "\npackage main\n") {
		return errors.New("the folder has no command")
	}
	for _, word := range c.words[3:] {
		if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !strings.Contains(text.String(), strconv.Quote(flag[2:])) {
			return fmt.Errorf("the command has no flag %s", flag)
		}
	}
	return nil
}

// inline matches a command in a sentence. A word such as <name> stands for one of the reader's.
var inline = regexp.MustCompile("`((?:bizfly|kubectl|helm) [a-z][^`]+)`")

// sentences are the commands in the prose of a text.
func sentences(at, prose string) ([]command, error) {
	var found []command
	for _, match := range inline.FindAllStringSubmatch(prose, -1) {
		said, err := commands(at, placeholder.ReplaceAllString(strings.ReplaceAll(match[1], "...", unknown), unknown))
		if err != nil {
			return nil, err
		}
		found = append(found, said...)
	}
	return found, nil
}

// hint is the part of a string that is a command: what stands in parentheses behind it explains it.
var hint = regexp.MustCompile(`^(?:bizfly [a-z-]+|kubectl|helm) [a-z][^(]*`)

// hints are the commands in the strings of a Go file: those that are a command, and those in backticks.
func hints(path string) ([]command, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("parsing the file: %w", err)
	}
	var found []command
	ast.Inspect(file, func(node ast.Node) bool {
		expression, ok := node.(ast.Expr)
		if !ok || err != nil {
			return err == nil
		}
		value, constant := literal(expression)
		if !constant {
			return true
		}
		at := files.Position(node.Pos()).String()
		var said []command
		if match := strings.TrimSuffix(hint.FindString(value), " and "); match != "" && !strings.Contains(value, "\n") {
			said, err = commands(at, strings.ReplaceAll(match, "...", unknown))
		} else {
			said, err = sentences(at, value)
		}
		found = append(found, said...)
		return false
	})
	return found, err
}

var verb = regexp.MustCompile(`%\[?\d?\]?[sdqv]`)

// literal is a string with what is only known at run time replaced, if a part of it is written down.
func literal(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(value, unknown), err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, leftConstant := literal(e.X)
		right, rightConstant := literal(e.Y)
		if !leftConstant {
			left = unknown
		}
		if !rightConstant {
			right = unknown
		}
		return left + right, e.Op == token.ADD && (leftConstant || rightConstant)
	}
	return "", false
}

// comments are the commands in the comments of a manifest: those that are a line, and those in backticks.
func comments(path string) ([]command, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	var found []command
	for i, line := range strings.Split(string(content), "\n") {
		_, comment, _ := strings.Cut(line, "#")
		at := fmt.Sprintf("%s:%d", path, i+1)
		said, err := sentences(at, comment)
		if strings.HasPrefix(comment, "   ") {
			if match := hint.FindString(strings.TrimSpace(comment)); match != "" {
				said, err = commands(at, match)
			}
		}
		if err != nil {
			return nil, err
		}
		found = append(found, said...)
	}
	return found, nil
}

var templated = regexp.MustCompile(`{{[^}]*}}`)

// notes are the commands that the chart prints after an installation: its indented lines.
func notes(path string) ([]command, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the notes: %w", err)
	}
	var script strings.Builder
	for line := range strings.Lines(string(content)) {
		if command, indented := strings.CutPrefix(line, "     "); indented {
			script.WriteString(templated.ReplaceAllString(command, unknown))
		}
	}
	return commands(path, script.String())
}

// documented are the commands that are not executed: those of the pages and of what the chart prints, and behind them those of hints and
// samples.
func documented() (pages, hinted []command) {
	GinkgoHelper()
	for _, path := range append(sources(), charts()...) {
		p := lo.Must(readPage(path))
		for _, b := range p.blocks {
			if b.language == "sh" && !b.marked(run) && b.e2e == "" {
				said := lo.Must(commands(fmt.Sprintf("%s:%d", path, b.line), b.text))
				pages = append(pages, said...)
			}
		}
		for i, line := range p.lines {
			said := lo.Must(sentences(fmt.Sprintf("%s:%d", path, i+1), line))
			pages = append(pages, said...)
		}
	}
	said, err := notes(filepath.Join(root, "charts/karpenter-provider-bizflycloud/templates/NOTES.txt"))
	Expect(err).NotTo(HaveOccurred())
	Expect(said).NotTo(BeEmpty())
	pages = append(pages, said...)
	for _, dir := range []string{"cmd", "internal", "config/samples"} {
		Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			var said []command
			switch {
			case err != nil || entry.IsDir():
			case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go"):
				said, err = hints(path)
			case filepath.Ext(path) == ".yaml":
				said, err = comments(path)
			}
			hinted = append(hinted, said...)
			return err
		})).To(Succeed())
	}
	return pages, hinted
}

// check parses a command with its tool.
func check(c command) error {
	parse, known := tools[c.words[0]]
	switch {
	case !known:
		return errors.New("it is not executed, and nothing checks it")
	case parse == nil:
		return nil
	}
	return parse(c)
}
