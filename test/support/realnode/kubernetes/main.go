// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is kubelet, kubeadm and kube-proxy in one binary: it becomes the one whose name it is started under (a
// symlink). One link step makes the build several times shorter than three, as in test/support/controlplane.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // registers the JSON log format, as upstream's mains do
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the build version metric
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	case "kubeadm":
		kubeadmerrors.HandleError(kubeadm.Run())
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q: start it as kubelet, kubeadm or kube-proxy\n", name)
		os.Exit(2)
	}
}
