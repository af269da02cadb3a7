// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandbox is BizFly Cloud in a box: its API over HTTP with ground truth under /_sandbox/, and, given a kubeconfig,
// servers that join that cluster. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/machine"
)

type config struct {
	listen, kubeconfig, regionLabel string
	envFile                         string
	memoryOverhead                  float64
	noCCM                           bool
	nodeSilence                     time.Duration
	zones                           int
	guests                          string
	machines                        machine.Options
	cloud                           cloud.Options
}

// How the machines inside of servers come about.
const (
	guestsImitated = "imitated"
	guestsReal     = "real"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == machine.Command {
		fmt.Fprintln(os.Stderr, "sandbox:", machine.Inside())
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func parse(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:0", "Where to listen; port 0 takes a free one.")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "The cluster that servers join. Without it servers are only servers.")
	flags.StringVar(&c.envFile, "print-env", "", "The file to write the controller's environment to, as a shell reads it.")
	flags.StringVar(&c.regionLabel, "region-label", cloud.RegionHN, "The region label that the cloud controller manager writes on nodes.")
	flags.Float64Var(&c.memoryOverhead, "memory-overhead", 0.04, "The share of the advertised memory that a server does not see.")
	flags.Int64Var(&c.cloud.Seed, "seed", 1, "What makes ids and addresses reproducible.")
	flags.DurationVar(&c.cloud.Latency, "latency", 3*time.Second, "How long tasks take (create, delete).")
	flags.DurationVar(&c.cloud.Boot, "boot", 2*time.Second, "How long an ACTIVE server takes until it joins.")
	flags.DurationVar(&c.cloud.DataDiskDelay, "data-disk-delay", time.Second, "How long an ACTIVE server takes until it has its data disks; less than --boot.")
	flags.BoolVar(&c.cloud.AppendNameCode, "append-name-code", false, "Append a code to the name of each server that is created.")
	flags.BoolVar(&c.cloud.ChangeNames, "change-names", false, "Give each server that is created a name of the cloud's own.")
	flags.BoolVar(&c.cloud.HideBuilding, "hide-building", false, "Keep servers in BUILD out of lists.")
	flags.BoolVar(&c.cloud.AsyncRejections, "async-rejections", false, "Reject for lack of capacity in the task instead of in the response.")
	flags.BoolVar(&c.cloud.Vietnamese, "vietnamese", false, "Word rejections for lack of capacity in Vietnamese.")
	flags.IntVar(&c.zones, "zones", 2, "How many zones the region HN has.")
	flags.StringVar(&c.cloud.ClusterName, "cluster-name", "sandbox", "The name of the cluster.")
	minor := flags.Int("kubernetes-minor", cloud.DefaultMinor, "The minor version of Kubernetes of the cluster, and so of its workers' images.")
	flags.StringVar(&c.cloud.Email, "email", "", "The account's email address; empty is the sandbox's own, as with all that follow.")
	flags.StringVar(&c.cloud.Password, "password", "", "The account's password.")
	flags.StringVar(&c.cloud.AppCredID, "app-credential-id", "", "The id of the application credential.")
	flags.StringVar(&c.cloud.AppCredSecret, "app-credential-secret", "", "The secret of the application credential.")
	flags.StringVar(&c.cloud.ClusterToken, "cluster-token", "", "The token with which servers join the cluster.")
	flags.BoolVar(&c.noCCM, "no-ccm", false, "Leave the cloud controller manager to the cluster.")
	flags.DurationVar(&c.nodeSilence, "node-silence", 30*time.Second,
		"How long the Node of a server that is gone is silent before it is deleted; 0 is not at all.")
	flags.StringVar(&c.guests, "guests", guestsImitated,
		"What is inside of servers: imitated, or real machines that boot --machine-image (root on Linux, in a network namespace of its own).")
	flags.StringVar(&c.machines.Image, "machine-image", ".cache/node/root", "The root file system of real machines.")
	flags.StringVar(&c.machines.Dir, "machine-dir", "", "Where real machines have their disks and consoles.")
	flags.Func("mode", "A shape of the cloud that public evidence shows; may be repeated, and separated by commas (docs/contribute/sandbox.md).",
		func(names string) error { return addModes(&c.cloud, names) })
	flags.StringVar(&c.cloud.TokenPrefix, "token-prefix", "", "What every token that is issued begins with.")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var more []string
	for i := 3; i <= c.zones; i++ {
		more = append(more, cloud.RegionHN+strconv.Itoa(i))
	}
	c.cloud.Catalog = cloud.DefaultCatalog(more...)
	c.cloud.Version, c.cloud.Catalog.Versions = cloud.ClusterVersion(*minor), cloud.Versions(*minor)
	if err := c.checkGuests(); err != nil {
		return c, err
	}
	if c.nodeSilence <= 0 {
		c.nodeSilence = -1
	}
	return c, nil
}

// checkGuests checks the flags of the machines inside of servers.
func (c config) checkGuests() error {
	switch {
	case c.memoryOverhead < 0 || c.memoryOverhead >= 1:
		return fmt.Errorf("--memory-overhead %v is not a share between 0 and 1", c.memoryOverhead)
	case c.guests != guestsImitated && c.guests != guestsReal:
		return fmt.Errorf("--guests %q is neither %s nor %s", c.guests, guestsImitated, guestsReal)
	case c.guests == guestsReal && (c.machines.Dir == "" || c.kubeconfig == ""):
		return errors.New("--guests=real needs --machine-dir and --kubeconfig")
	}
	return nil
}

func addModes(options *cloud.Options, names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if !slices.ContainsFunc(cloud.Modes, func(m cloud.Mode) bool { return m.Name == name }) {
			return fmt.Errorf("%q is no mode", name)
		}
		options.Modes = append(options.Modes, name)
	}
	return nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	c, err := parse(args)
	if err != nil {
		return err
	}
	var client kubernetes.Interface
	var cluster *rest.Config
	if c.kubeconfig != "" {
		if client, cluster, err = connect(c.kubeconfig); err != nil {
			return err
		}
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	sandbox := cloud.New(c.cloud).Serve(listener)
	defer sandbox.Close()
	if c.envFile != "" {
		if err := os.WriteFile(c.envFile, []byte(environment(sandbox, c.regionLabel)), 0o600); err != nil {
			return fmt.Errorf("writing --print-env: %w", err)
		}
	}
	fmt.Fprintf(out, "listening on %s\n", sandbox.URL)

	var guests sync.WaitGroup
	if client != nil {
		options := guest.Options{
			Client: client, Cluster: cluster, Region: c.regionLabel, MemoryOverhead: c.memoryOverhead, NoCCM: c.noCCM, NodeSilence: c.nodeSilence,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		}
		if c.guests == guestsReal {
			c.machines.Log = options.Log
			machines, err := machine.New(c.machines)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, machines.Close()) }()
			options.Machines = machines
		}
		g := guest.New(sandbox.Cloud, options)
		guests.Go(func() { g.Run(ctx) })
	}
	<-ctx.Done()
	guests.Wait()
	return nil
}

// connect makes a client that is not throttled on this side: a thousand machines may join at once.
func connect(kubeconfig string) (kubernetes.Interface, *rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading --kubeconfig: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = 500, 1000, "bizfly-sandbox"
	client, err := kubernetes.NewForConfig(config)
	return client, config, err
}

// environment is what the controller needs to work with this sandbox, as a shell reads it.
func environment(s *cloud.Sandbox, regionLabel string) string {
	credentials, bke := s.Credentials(), s.BKE()
	var b strings.Builder
	for _, entry := range [][2]string{
		{"BIZFLY_CLOUD_AUTH_METHOD", "password"},
		{"BIZFLY_CLOUD_EMAIL", credentials.Email},
		{"BIZFLY_CLOUD_PASSWORD", credentials.Password},
		{"BIZFLY_CLOUD_APP_CRED_ID", credentials.AppCredID},
		{"BIZFLY_CLOUD_APP_CRED_SECRET", credentials.AppCredSecret},
		{"BIZFLY_CLOUD_REGION", credentials.Region},
		{"BIZFLY_CLOUD_REGION_LABEL", regionLabel},
		{"BIZFLY_CLOUD_PROJECT_ID", credentials.ProjectID},
		{"BIZFLY_CLOUD_API_URL", s.APIURL},
		{"BIZFLY_CLOUD_ALLOW_HTTP", "true"},
		{"BKE_CLUSTER_ID", bke.ClusterUID},
		{"BKE_CLUSTER_TOKEN", bke.ClusterToken},
		{"BKE_JOIN_ENDPOINT", bke.JoinEndpoint},
		{"BKE_LOG_ENDPOINT", bke.LogEndpoint},
		{"CLUSTER_NAME", bke.ClusterName},
	} {
		fmt.Fprintf(&b, "%s=%s\n", entry[0], quote(entry[1]))
	}
	return b.String()
}

// quote leaves what a shell takes as it is alone, so that simpler readers than a shell can read the file as well.
func quote(value string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@+", r)
	}
	if value != "" && strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
