/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package logging writes Karpenter's log as text for a terminal. Core builds a logger that writes JSON and takes no other encoding,
// but it takes a path to write to: a path of our scheme, "console:" before a usual one, shows each line as text.
package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/samber/lo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/env"
)

const (
	// FormatJSON is one JSON object per line, for machines.
	FormatJSON = "json"
	// FormatConsole is plain text, to read in a terminal.
	FormatConsole = "console"

	scheme = "console"
	// timeLayout is that of zapcore.ISO8601TimeEncoder, which core uses.
	timeLayout = "2006-01-02T15:04:05.000Z0700"
)

func init() {
	// It fails only for a scheme that is taken, which is ours alone.
	lo.Must0(zap.RegisterSink(scheme, open))
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

// ConsolePaths turns core's comma-separated output paths into those that show the same as text.
func ConsolePaths(paths string) string {
	return strings.Join(lo.Map(strings.Split(paths, ","), func(path string, _ int) string {
		if strings.HasPrefix(path, scheme+":") {
			return path
		}
		return scheme + ":" + path
	}), ",")
}

// open opens what follows the scheme, and writes text there.
func open(target *url.URL) (zap.Sink, error) {
	path := lo.CoalesceOrEmpty(target.Opaque, target.Path)
	out, closeAll, err := zap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening %q for the log: %w", path, err)
	}
	return &console{WriteSyncer: out, close: closeAll, encoder: zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		MessageKey: "message", LevelKey: "level", TimeKey: "time", NameKey: "logger", CallerKey: "caller", StacktraceKey: "stacktrace",
		EncodeLevel: zapcore.CapitalLevelEncoder, EncodeTime: zapcore.ISO8601TimeEncoder, EncodeCaller: zapcore.ShortCallerEncoder,
		EncodeDuration: zapcore.StringDurationEncoder, LineEnding: zapcore.DefaultLineEnding,
	})}, nil
}

// console is a sink that gets lines of JSON, one per write, and passes them on as text.
type console struct {
	zapcore.WriteSyncer
	close   func()
	encoder zapcore.Encoder
}

// Write implements zap.Sink. A line that is not core's is written as it is: none is ever lost.
func (c *console) Write(line []byte) (int, error) {
	entry, fields, err := parse(line)
	if err != nil {
		return c.WriteSyncer.Write(line)
	}
	text, err := c.encoder.EncodeEntry(entry, fields)
	if err != nil {
		return c.WriteSyncer.Write(line)
	}
	defer text.Free()
	if _, err := c.WriteSyncer.Write(text.Bytes()); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Close implements zap.Sink.
func (c *console) Close() error {
	c.close()
	return nil
}

// parse reads one line, keeping the order of its fields.
func parse(line []byte) (entry zapcore.Entry, fields []zapcore.Field, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return entry, nil, fmt.Errorf("not an object: %w", err)
	}
	var at, level string
	texts := map[string]*string{
		"time": &at, "level": &level, "logger": &entry.LoggerName, "message": &entry.Message, "stacktrace": &entry.Stack,
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return entry, nil, err
		}
		key, _ := token.(string)
		var value json.RawMessage
		if text, known := texts[key]; known {
			err = decoder.Decode(text)
		} else if err = decoder.Decode(&value); err == nil {
			fields = append(fields, zap.Reflect(key, value))
		}
		if err != nil {
			return entry, nil, err
		}
	}
	if at != "" {
		if entry.Time, err = time.Parse(timeLayout, at); err != nil {
			return entry, nil, err
		}
	}
	entry.Level, err = zapcore.ParseLevel(level)
	return entry, fields, err
}

// Options are those of the log's format. Core's own LOG_LEVEL, LOG_OUTPUT_PATHS and LOG_ERROR_OUTPUT_PATHS say what is
// logged, and where.
type Options struct {
	// Format is FormatJSON or FormatConsole (LOG_FORMAT).
	Format string
}

// AddFlags implements coreoptions.Injectable.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	fs.StringVar(&o.Format, "log-format", env.WithDefaultString("LOG_FORMAT", FormatJSON),
		"How the log is written: json (one object per line, for machines) or console (plain text, to read in a terminal).")
}

// Parse implements coreoptions.Injectable.
func (o *Options) Parse(fs *coreoptions.FlagSet, args ...string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		return fmt.Errorf("parsing flags, %w", err)
	}
	if o.Format != FormatJSON && o.Format != FormatConsole {
		return fmt.Errorf("LOG_FORMAT=%q is unknown: use %s or %s", o.Format, FormatJSON, FormatConsole)
	}
	return nil
}

// ToContext implements coreoptions.Injectable. The format is not read later, but core reads its paths, which are in the
// context already: its options come first. Parse would be too early, since every option parses all flags again.
func (o *Options) ToContext(ctx context.Context) context.Context {
	if o.Format == FormatConsole {
		core := coreoptions.FromContext(ctx)
		core.LogOutputPaths = ConsolePaths(core.LogOutputPaths)
	}
	return ctx
}
