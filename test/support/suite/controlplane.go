// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// assets is the variable in which envtest looks for the folder of etcd and kube-apiserver.
const assets = "KUBEBUILDER_ASSETS"

// UseControlPlane lets envtest find etcd and kube-apiserver until the end of the node that calls it, also where a shell or an editor
// runs the tests without make: the user's own (KUBEBUILDER_ASSETS), or what `make controlplane` has built.
func UseControlPlane() {
	GinkgoHelper()
	dir, err := os.Getwd()
	Expect(err).ToNot(HaveOccurred())
	found, err := controlPlane(os.Getenv(assets), dir)
	if err != nil {
		Fail(err.Error())
	}
	GinkgoT().Setenv(assets, found)
}

// controlPlane returns the folder of the control plane's binaries: the user's own, or that of the repository in which dir is: of the
// outermost module, since modules are nested. Tests run in the folder of their package; the path of the source file would be a wrong one
// after -trimpath.
func controlPlane(own, dir string) (string, error) {
	folder := own
	for root := dir; own == "" && root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			folder = filepath.Join(root, ".cache", "controlplane", "bin")
		}
	}
	if folder == "" {
		return "", fmt.Errorf("no go.mod in %s or above: run the tests inside of the repository, or set %s", dir, assets)
	}
	if _, err := os.Stat(filepath.Join(folder, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("no kube-apiserver in %s (%s=%q): run `make controlplane` once", folder, assets, own)
	}
	return folder, nil
}
