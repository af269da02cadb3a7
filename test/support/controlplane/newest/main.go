// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controlplane is etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl in one binary: it
// becomes the one whose name it is started under (a symlink), or the one that its first argument names.
//
// One link step and one set of packages make the build several times shorter than five separate ones, and the nested
// module keeps k8s.io/kubernetes and etcd's server out of the dependencies of the controller.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // registers the JSON log format, as upstream's mains do
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the build version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	args := os.Args
	if commands()[filepath.Base(args[0])] == nil && len(args) > 1 {
		args = args[1:]
	}
	name := filepath.Base(args[0])
	run := commands()[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "unknown component %q: start it as etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl\n", name)
		os.Exit(2)
	}
	// The components parse os.Args themselves, each in its own way.
	os.Args = append([]string{name}, args[1:]...)
	os.Exit(run())
}

// commands maps each name to what runs it; a function, so that only the chosen component's flags are registered.
func commands() map[string]func() int {
	run := func(newCommand func() *cobra.Command) func() int {
		return func() int { return cli.Run(newCommand()) }
	}
	return map[string]func() int{
		"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
		"kube-apiserver":          run(apiserver.NewAPIServerCommand),
		"kube-controller-manager": run(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          run(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubectl":                 run(kubectl.NewDefaultKubectlCommand),
	}
}
