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

package logging

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/env"
)

func init() {
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

// Options are those of the log's format. Core's own LOG_LEVEL, LOG_OUTPUT_PATHS and LOG_ERROR_OUTPUT_PATHS say what is
// logged, and where.
type Options struct {
	// Format is FormatJSON or FormatConsole (LOG_FORMAT).
	Format string
}

// AddFlags implements coreoptions.Injectable.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	fs.StringVar(&o.Format, "log-format", env.WithDefaultString("LOG_FORMAT", FormatJSON), "How the log is written: json (one object per line, for machines) or console (text, for people).")
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

// ToContext implements coreoptions.Injectable. Nobody asks for the format later, but core for its paths, which are in the
// context already: its options come first. Parse would be too early, since every option parses all flags again.
func (o *Options) ToContext(ctx context.Context) context.Context {
	if o.Format == FormatConsole {
		core := coreoptions.FromContext(ctx)
		core.LogOutputPaths = ConsolePaths(core.LogOutputPaths)
	}
	return ctx
}
