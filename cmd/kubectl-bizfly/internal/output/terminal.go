// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"crypto/rand"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"
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

// Terminal is the only way to what the user sees. Whoever can write a message into the cluster could otherwise rewrite the screen:
// every control character but newline and tab is written as \xNN, and only the colours that this package adds are passed on.
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
	if _, err := t.Writer.Write(ownColor.ReplaceAll(safe(p), []byte("\x1b[${1}m"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// safe returns text without control characters but those of this package's colours.
func safe(text []byte) []byte {
	to, from := make([]byte, 0, len(text)), 0
	for _, at := range ownColor.FindAllIndex(text, -1) {
		to = append(appendSafe(to, text[from:at[0]]), text[at[0]:at[1]]...)
		from = at[1]
	}
	return appendSafe(to, text[from:])
}

// appendSafe appends text without control characters. Bytes that are no UTF-8 count as such: some terminals obey them.
func appendSafe(to, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			to = fmt.Appendf(to, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && r < ' ' || 0x7f <= r && r <= 0x9f:
			to = fmt.Appendf(to, `\x%02x`, r)
		default:
			to = append(to, text[:size]...)
		}
		text = text[size:]
	}
	return to
}
