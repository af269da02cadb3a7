// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of the plugin: flags, output and exit statuses. What the commands find out is in the
// packages beside it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/defect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

// Exit statuses.
const (
	ExitOK = 0
	// ExitFindings says that doctor found an error, or that plan was asked to fail for pods that fit nowhere or above a price, or that repack has left nodes,
	// that leftovers are left, or that a change replaces nodes (diff).
	ExitFindings = 1
	// ExitFailure says that there is no answer.
	ExitFailure = 2
)

// errFindings ends the process with ExitFindings after the result was printed.
var errFindings = errors.New("findings")

// App is one run of the plugin.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	// Connect makes the session; nil connects as the flags say. Suites give one of their own.
	Connect func(context.Context, connect.Options) (*connect.Session, error)
	// PoolInterval is the time between two looks at a worker pool that was changed.
	PoolInterval time.Duration
	// Wait lets repack wait until it looks again; nil waits some seconds. Suites let a simulation go on instead.
	Wait func(ctx context.Context) error
	// Clock ends the waiting of repack; nil is the real one.
	Clock clock.PassiveClock

	flags   *genericclioptions.ConfigFlags
	format  string
	options connect.Options
}

// NewApp makes an App over the process's streams.
func NewApp() *App {
	return &App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, PoolInterval: 2 * time.Second}
}

// For makes an App over a cluster that is given; the reader may be nil.
func For(reader client.Reader, in io.Reader, out, errOut io.Writer) *App {
	return &App{In: in, Out: out, Err: errOut, Connect: func(ctx context.Context, o connect.Options) (*connect.Session, error) {
		return connect.NewFor(ctx, reader, o)
	}}
}

// Run runs the command line and returns the exit status.
func (a *App) Run(ctx context.Context, args ...string) int {
	a.Out, a.Err = output.NewTerminal(a.Out), output.NewTerminal(a.Err)
	log.SetLogger(logging.NopLogger)
	root := a.Command()
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	switch err := execute(ctx, root); {
	case err == nil:
		return ExitOK
	case errors.Is(err, errFindings):
		return ExitFindings
	default:
		output.Fprintf(a.Err, "error: %s\n", err)
		return ExitFailure
	}
}

// execute runs the command, and turns a panic into an error.
func execute(ctx context.Context, root *cobra.Command) (err error) {
	defer defect.Recover(&err)
	return root.ExecuteContext(ctx)
}

// Command makes the command line.
func (a *App) Command() *cobra.Command {
	name := "kubectl bizfly"
	if len(os.Args) > 0 && !strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		name = "kubectl-bizfly"
	}
	root := &cobra.Command{
		Use:   "kubectl-bizfly",
		Short: "What Karpenter on BizFly Cloud would cost, what is wrong, and why a pod is pending",
		Long: `kubectl bizfly answers questions about Karpenter provider for BizFly Cloud with the controller's own code.
It only reads: from the cluster of your kubeconfig and, where credentials are given, from BizFly Cloud. Only pool pin --yes changes
something, a worker pool of BKE, repack --yes creates NodeClaims, Jobs and pods, and leftovers --delete --yes deletes what an uninstall
has left. Without --yes they show what they would do.

Credentials are those of the flags, else of BIZFLY_CLOUD_REGION, BIZFLY_CLOUD_APP_CRED_ID and BIZFLY_CLOUD_APP_CRED_SECRET (the
variables of the controller), else of the controller's Secret, if your kubeconfig may read it.`,
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
	}
	a.flags = genericclioptions.NewConfigFlags(true)
	a.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&a.format, "output", "o", output.Table, "output: table, json or yaml")
	root.PersistentFlags().StringVar(&a.options.ControllerNamespace, "controller-namespace", "",
		"the namespace of the controller, whose settings and Secret are used; default all, where only one has a controller")
	root.PersistentFlags().StringVar(&a.options.Region, "region", "", "the region of BizFly Cloud, such as HN; default that of the environment or the controller")
	root.PersistentFlags().StringVar(&a.options.IDFile, "credential-id-file", "", "a file with the id of an application credential of BizFly Cloud")
	root.PersistentFlags().StringVar(&a.options.SecretFile, "credential-secret-file", "", "a file with its secret")
	root.MarkFlagsRequiredTogether("credential-id-file", "credential-secret-file")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{output.Table, output.JSON, output.YAML}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.flavors(), a.plan(), a.repack(), a.why(), a.doctor(), a.top(), a.pool(), a.leftovers(), a.diff(), a.bundle(), a.version())
	return root
}

// connect makes session and printer.
func (a *App) connect(ctx context.Context) (context.Context, *connect.Session, *output.Printer, error) {
	printer, err := output.New(a.Out, a.Err, a.format)
	if err != nil {
		return ctx, nil, nil, err
	}
	open := a.Connect
	if open == nil {
		open = func(ctx context.Context, o connect.Options) (*connect.Session, error) {
			return connect.New(ctx, a.flags.ToRESTConfig, o)
		}
	}
	s, err := open(ctx, a.options)
	if err != nil {
		return ctx, nil, nil, err
	}
	return s.Context(ctx), s, printer, nil
}

// doIt says how to do what was only shown.
func (a *App) doIt(words ...string) string {
	return fmt.Sprintf("Nothing was changed. To do it, run: kubectl bizfly %s --yes --namespace %s", strings.Join(words, " "), a.namespace())
}

func (a *App) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the plugin and of the controller, and whether they fit", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			skew := s.Skew()
			if done, err := printer.Value(skew); done {
				return err
			}
			printer.Printf("plugin:     %s\n", operator.Version())
			printer.Printf("controller: %s\n", skew.Controller)
			if skew.Message != "" {
				printer.Notes([]string{skew.Message})
			}
			return nil
		},
	}
}

// progress returns what shows on a terminal how far work is, in one line that is written over, and what clears the line.
func progress(printer *output.Printer) (show func(format string, args ...any), end func()) {
	file := output.File(printer.Err)
	if file == nil || !term.IsTerminal(int(file.Fd())) {
		return func(string, ...any) {}, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(format string, args ...any) { output.Fprintf(file, clearLine+format, args...) }, func() { _, _ = fmt.Fprint(file, clearLine) }
}
