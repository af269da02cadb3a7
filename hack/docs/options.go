// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// option is a flag with its variable as the source has them.
type option struct{ flag, variable, value, usage string }

const optionsIntroduction = `<!-- Written by make generate from internal/options and Karpenter core. -->

# Options and tuning

Look up a setting of the controller. It reads options from its environment or flags when it starts; a flag wins. [Tuning keys](#tuning-keys)
change while it runs. The Helm chart has a value for each ([its README](../../charts/karpenter-provider-bizflycloud/README.md)).

## Of this provider

A flag is the variable in lower case, with hyphens, and ` + "`bizfly` for `BIZFLY_CLOUD`: `--cluster-name`, `--bizfly-region`" + `.

`

// optionsPage is the reference of flags and environment variables, ours and those of Karpenter core, and of the tuning keys.
func optionsPage() (string, error) {
	core, err := moduleFolder("sigs.k8s.io/karpenter")
	if err != nil {
		return "", err
	}
	cores, err := readOptions(&coreoptions.Options{}, filepath.Join(core, "pkg", "operator", "options"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var ours, secrets []option
	for _, s := range options.Table() {
		o := option{flag: s.Flag, variable: s.Variable, value: s.Default, usage: s.Doc}
		switch {
		case s.Secret:
			secrets = append(secrets, o)
		case s.Variable != "" && s.Key == "":
			ours = append(ours, o)
		}
	}
	b.WriteString(optionsIntroduction)
	table(&b, ours)
	b.WriteString("\nSecrets have no flag, because every process of a machine can read a command line:\n\n| variable | |\n| --- | --- |\n")
	for _, s := range secrets {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.variable, s.usage)
	}
	b.WriteString(tuningIntroduction)
	tuningTable(&b)
	b.WriteString(tuningDetails)
	b.WriteString("\n## Of Karpenter\n\n[Karpenter's settings](https://karpenter.sh/docs/reference/settings/) explain each; these are the defaults:\n\n")
	for _, o := range cores {
		if o.flag != strings.ReplaceAll(strings.ToLower(o.variable), "_", "-") {
			return "", fmt.Errorf("the flag of %s is %s: list both", o.variable, o.flag)
		}
		fmt.Fprintf(&b, "- `%s=%s`\n", o.variable, o.value)
	}
	return b.String(), nil
}

// moduleFolder is where the source of a module that we depend on is.
func moduleFolder(module string) (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output() //nolint:gosec // a constant
	if err != nil {
		return "", fmt.Errorf("looking for the source of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func defaultValue(o option) string {
	if o.value == "" {
		return "-"
	}
	return "`" + o.value + "`"
}

func table(b *strings.Builder, list []option) {
	b.WriteString("| variable | default | |\n| --- | --- | --- |\n")
	for _, o := range list {
		name := "`" + o.variable + "`"
		if o.flag != strings.ReplaceAll(strings.ToLower(strings.Replace(o.variable, "BIZFLY_CLOUD", "BIZFLY", 1)), "_", "-") {
			name += ", `--" + o.flag + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, defaultValue(o), strings.ReplaceAll(strings.TrimSpace(o.usage), "|", "\\|"))
	}
}

// readOptions joins what is registered, which has the defaults, with the source, which has the variables' names.
func readOptions(injectable coreoptions.Injectable, folder string) ([]option, error) {
	registered := flag.NewFlagSet("", flag.ContinueOnError)
	injectable.AddFlags(&coreoptions.FlagSet{FlagSet: registered})
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []option
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", name, err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if o, ok := optionOf(call, registered); ok {
				found = append(found, o)
				return false
			}
			return true
		})
	}
	missing := 0
	registered.VisitAll(func(*flag.Flag) { missing++ })
	if missing != len(found) {
		return nil, fmt.Errorf("%s: %d flags are registered and %d were found in the source", folder, missing, len(found))
	}
	return found, nil
}

// optionOf reads fs.XVar(&o.X, "flag", env.WithDefaultX("VARIABLE", value), "usage") and
// fs.BoolVarWithEnv(&o.X, "flag", "VARIABLE", value, "usage").
func optionOf(call *ast.CallExpr, registered *flag.FlagSet) (option, bool) {
	if len(call.Args) < 4 {
		return option{}, false
	}
	names := texts(call.Args[1])
	if len(names) != 1 {
		return option{}, false
	}
	f := registered.Lookup(names[0])
	variables := texts(call.Args[2])
	if f == nil || len(variables) == 0 {
		return option{}, false
	}
	o := option{flag: f.Name, variable: variables[0], value: f.DefValue, usage: f.Usage}
	if value, ok := call.Args[3].(*ast.Ident); ok && len(call.Args) == 5 {
		o.value = value.Name // a flag of core's own kind, which registers no default
	}
	return o, true
}

// texts are the string literals of an expression.
func texts(expression ast.Expr) []string {
	var found []string
	ast.Inspect(expression, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
