// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output prints results: tables for people, JSON and YAML for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"sigs.k8s.io/yaml"
)

// Formats of -o.
const (
	Table = "table"
	JSON  = "json"
	YAML  = "yaml"
)

// Printer writes in one format.
type Printer struct {
	// Out gets the result, Err progress and notes.
	Out, Err io.Writer
	// Format is one of the formats.
	Format string
	// Color is true where the terminal shows colours; Width is how wide it is, 0 without a terminal.
	Color bool
	Width int
}

// New makes a printer. Colour is used on a terminal, unless NO_COLOR is set, and everywhere where FORCE_COLOR is.
func New(out, errOut io.Writer, format string) (*Printer, error) {
	switch format {
	case Table, JSON, YAML:
	default:
		return nil, fmt.Errorf("unknown output %q, use %s, %s or %s", format, Table, JSON, YAML)
	}
	p := &Printer{Out: NewTerminal(out), Err: NewTerminal(errOut), Format: format, Color: os.Getenv("FORCE_COLOR") != ""}
	if file := File(out); file != nil && term.IsTerminal(int(file.Fd())) {
		p.Color = p.Color || os.Getenv("NO_COLOR") == ""
		p.Width, _, _ = term.GetSize(int(file.Fd()))
	}
	return p, nil
}

// controls are the control and format characters that package json leaves as they are: no YAML may hold the former, and
// no terminal shall get any.
var controls = regexp.MustCompile(`[\x7f-\x{9f}\p{Cf}]`)

// EncodeJSON returns a value as JSON without control characters.
func EncodeJSON(value any) ([]byte, error) {
	encoded, err := json.MarshalIndent(value, "", "  ")
	return append(controls.ReplaceAllFunc(encoded, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		var escaped []byte
		for _, unit := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
		return escaped
	}), '\n'), err
}

// EncodeYAML returns a value as YAML without control characters.
func EncodeYAML(value any) ([]byte, error) {
	encoded, err := EncodeJSON(value)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(encoded)
}

// Value prints a result for programs, and reports whether the format is one of theirs.
func (p *Printer) Value(value any) (bool, error) {
	var encoded []byte
	var err error
	switch p.Format {
	case JSON:
		encoded, err = EncodeJSON(value)
	case YAML:
		encoded, err = EncodeYAML(value)
	default:
		return false, nil
	}
	if err == nil {
		_, err = p.Out.Write(encoded)
	}
	return true, err
}

// Printf prints for people. Each argument is one line, whatever others have written into it; bytes are printed as they
// are.
func (p *Printer) Printf(format string, args ...any) { Fprintf(p.Out, format, args...) }

// Fprintf is Printf to another writer.
func Fprintf(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, format, lines(args)...)
}

// Notes prints what the user should know, apart from the result.
func (p *Printer) Notes(notes []string) {
	for _, note := range notes {
		Fprintf(p.Err, "%s %s\n", p.Paint(text.FgYellow, "note:"), note)
	}
}

// Paint colours text where the terminal shows colours.
func (p *Printer) Paint(color text.Color, value string) string {
	if !p.Color {
		return value
	}
	return colored(color, value)
}

// Tick marks what is in order, and what is not.
func (p *Printer) Tick(ok bool) string {
	if ok {
		return p.Paint(text.FgGreen, "✓")
	}
	return p.Paint(text.FgRed, "✗")
}

// Rows prints a table. Columns whose title begins with ">" are aligned to the right.
func (p *Printer) Rows(titles []string, rows [][]string) {
	t := table.NewWriter()
	t.SetOutputMirror(p.Out)
	t.SuppressTrailingSpaces()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	header, configs := table.Row{}, []table.ColumnConfig{}
	for i, title := range titles {
		align := text.AlignLeft
		if strings.HasPrefix(title, ">") {
			align, title = text.AlignRight, title[1:]
		}
		header = append(header, title)
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, WidthMax: p.columnWidth(len(titles), i)})
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	for _, row := range rows {
		cells := table.Row{}
		for _, cell := range row {
			// The table would obey them, and break its lines.
			cells = append(cells, Line(cell))
		}
		t.AppendRow(cells)
	}
	t.Render()
}

// columnWidth lets the last column, which is prose, wrap in what a terminal leaves.
func (p *Printer) columnWidth(columns, i int) int {
	const prose = 60
	if i < columns-1 || p.Width == 0 {
		return 0
	}
	return max(prose, p.Width-columns*16)
}

// VND writes an amount with separators, rounded to whole VND. Half a VND is rounded up also where a sum of prices is a
// billionth less, so that a flavor has one price on all pages. To add 0 makes nothing of what is rounded to -0.
func VND(amount float64) string {
	return message.NewPrinter(language.English).Sprintf("%.0f", math.Round(math.Round(amount*1e6)/1e6)+0)
}

// Names names the first of many, and says how many more there are.
func Names(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Plural writes a number of things.
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Percent writes a part of 1.
func Percent(part float64) string { return fmt.Sprintf("%.0f%%", part*100) }

// Bar draws a part of 1 as wide as given, coloured by how full it is.
func (p *Printer) Bar(part float64, width int) string {
	filled := int(math.Round(min(max(part, 0), 1) * float64(width)))
	bar := strings.Repeat("█", filled) + strings.Repeat("░", width-filled)
	color := text.FgGreen
	switch {
	case part < 0.4:
		color = text.FgYellow
	case part > 1:
		color = text.FgRed
	}
	return p.Paint(color, bar) + fmt.Sprintf(" %4s", Percent(part))
}
