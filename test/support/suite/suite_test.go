// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

func TestSuite(t *testing.T) { Run(t, "Suite") }

var _ = Describe("A suite", func() {
	It("should run its specs in a random order, by the seed of GINKGO_SEED where there is one", func() {
		config := configure(types.SuiteConfig{RandomSeed: 7})
		Expect(config.RandomizeAllSpecs).To(BeTrue())
		Expect(config.RandomSeed).To(BeEquivalentTo(7))
		GinkgoT().Setenv("GINKGO_SEED", "46")
		Expect(configure(types.SuiteConfig{RandomSeed: 7}).RandomSeed).To(BeEquivalentTo(46))
	})
	It("should report the progress of a spec that takes minutes, unless a flag sets the time", func() {
		Expect(configure(types.SuiteConfig{}).PollProgressAfter).To(Equal(2 * Patience))
		Expect(configure(types.SuiteConfig{PollProgressAfter: Patience}).PollProgressAfter).To(Equal(Patience))
	})
	It("should fail where a folder that it reads is missing", func() {
		Reads(".")
		Expect(func() { Reads("testdata/none") }).To(PanicWith(MatchError(os.ErrNotExist)))
	})
})

var _ = Describe("The control plane of the tests", func() {
	var root, pkg, built string

	BeforeEach(func() {
		root = GinkgoT().TempDir()
		pkg = filepath.Join(root, "internal", "x")
		built = filepath.Join(root, ".cache", "controlplane", "bin")
		Expect(os.MkdirAll(pkg, 0o755)).To(Succeed())
		Expect(os.MkdirAll(built, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o600)).To(Succeed())
	})
	It("should be the one that make has built, for a test that knows only its package's folder", func() {
		Expect(os.WriteFile(filepath.Join(built, "kube-apiserver"), nil, 0o600)).To(Succeed())
		Expect(controlPlane("", pkg)).To(Equal(built))
		Expect(controlPlane("", root)).To(Equal(built))
		Expect(os.WriteFile(filepath.Join(root, "internal", "go.mod"), nil, 0o600)).To(Succeed())
		Expect(controlPlane("", pkg)).To(Equal(built), "a module below builds no control plane of its own")
	})
	It("should be the user's own where there is one", func() {
		own := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(own, "kube-apiserver"), nil, 0o600)).To(Succeed())
		Expect(controlPlane(own, pkg)).To(Equal(own))
	})
	It("should be named with the command that builds it where it is missing", func() {
		_, err := controlPlane("", pkg)
		Expect(err).To(MatchError("no kube-apiserver in " + built + ` (KUBEBUILDER_ASSETS=""): run ` + "`make controlplane` once"))
		_, err = controlPlane(pkg, root)
		Expect(err).To(MatchError(ContainSubstring(`(KUBEBUILDER_ASSETS="` + pkg + `"): run ` + "`make controlplane` once")))
	})
	It("should not be searched for outside of a module", func() {
		_, err := controlPlane("", GinkgoT().TempDir())
		Expect(err).To(MatchError(ContainSubstring("run the tests inside of the repository")))
	})
})
