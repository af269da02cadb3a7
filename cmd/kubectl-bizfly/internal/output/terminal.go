// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"crypto/rand"
	"fmt"
	"io"
	"math/big"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/samber/lo"
)

// key marks the escape sequences of this process: texts of the cluster cannot know it.
var key = lo.Must(rand.Int(rand.Reader, big.NewInt(1<<31)))

var ownColor = regexp.MustCompile(fmt.Sprintf("\x1b\\[%d;(\\d+)m", key))

// colored writes text in a colour that a Terminal lets through.
func colored(color text.Color, value string) string {
	return fmt.Sprintf("\x1b[%d;%dm%s\x1b[%d;0m", key, color, value, key)
}

// Terminal is the only way to what the user sees. A user who can write a message into the cluster could otherwise rewrite
// the screen: every control and format character but newline and tab is escaped, and only the colours that this package
// adds are passed on. What others write passes Line before, which leaves no newline either.
type Terminal struct{ io.Writer }

// NewTerminal makes one, unless the writer is one already.
func NewTerminal(w io.Writer) Terminal {
	if terminal, ok := w.(Terminal); ok {
		return terminal
	}
	return Terminal{Writer: w}
}

// File is the file behind a Terminal, nil where there is none.
func File(w io.Writer) *os.File {
	file, _ := NewTerminal(w).Writer.(*os.File)
	return file
}

// Write implements io.Writer.
func (t Terminal) Write(p []byte) (int, error) {
	if _, err := t.Writer.Write(ownColor.ReplaceAll(safe(p, false), []byte("\x1b[${1}m"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Line returns a value in one line: newlines and tabs are escaped too. A message with newlines could otherwise look
// like several ones, or like what this program itself says. Those between the errors of a list, which are ours, become
// semicolons.
func Line(value any) string {
	text := fmt.Sprint(value)
	if err, isError := value.(error); isError {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return string(safe([]byte(text), true))
}

// lines returns arguments of a format with each text in one line. Bytes are what this program has encoded itself.
func lines(args []any) []any {
	return lo.Map(args, func(arg any, _ int) any {
		if _, encoded := arg.([]byte); encoded {
			return arg
		}
		switch kind := reflect.ValueOf(arg).Kind(); {
		case reflect.Int <= kind && kind <= reflect.Float64 || kind == reflect.Bool:
			if _, named := arg.(fmt.Stringer); !named {
				return arg
			}
		}
		return Line(arg)
	})
}

// safe returns text without control characters but those of this package's colours, and without newlines and tabs where
// it is one line.
func safe(text []byte, oneLine bool) []byte {
	to, from := make([]byte, 0, len(text)), 0
	for _, at := range ownColor.FindAllIndex(text, -1) {
		to = append(appendSafe(to, text[from:at[0]], oneLine), text[at[0]:at[1]]...)
		from = at[1]
	}
	return appendSafe(to, text[from:], oneLine)
}

// appendSafe appends text without control and format characters: the latter can let a text read backwards. Bytes that
// are no UTF-8 count as such: some terminals obey them.
func appendSafe(to, text []byte, oneLine bool) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			to = fmt.Appendf(to, `\x%02x`, text[0])
		case r == '\n' || r == '\t':
			if oneLine {
				to = append(to, strings.Trim(strconv.QuoteRune(r), "'")...)
			} else {
				to = append(to, text[0])
			}
		case r < ' ' || 0x7f <= r && r <= 0x9f:
			to = fmt.Appendf(to, `\x%02x`, r)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			to = fmt.Appendf(to, `\u%04x`, r)
		default:
			to = append(to, text[:size]...)
		}
		text = text[size:]
	}
	return to
}
