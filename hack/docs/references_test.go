// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"

	_ "sigs.k8s.io/karpenter/pkg/controllers" // registers core's metrics
	nodemetrics "sigs.k8s.io/karpenter/pkg/controllers/metrics/node"
)

// reference is what looks like the name of a metric of ours or of core; a name that ends in _ is a prefix.
var reference = regexp.MustCompile(`\bkarpenter_[a-z0-9_]*[a-z0-9]\b[^*a-z0-9_./-]`)

// Core's controller of nodes registers its metrics when it is made, which a repeated spec must not do again.
var registerNodeMetrics = sync.OnceFunc(func() { nodemetrics.NewController(nil) })

var _ = Describe("The names of metrics", func() {
	It("should exist wherever they are written: pages, dashboards, alerts and runbooks", func() {
		registerNodeMetrics()
		descs, err := described()
		Expect(err).ToNot(HaveOccurred())
		known := lo.SliceToMap(descs, func(d *prometheus.Desc) (string, bool) {
			m, err := parse(d.String())
			Expect(err).ToNot(HaveOccurred())
			return m.name, true
		})
		looked := 0
		for _, root := range []string{"../../docs", "../../charts", "../../README.md"} {
			Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.Name() == ".vitepress" {
					return filepath.SkipDir // packages of npm
				}
				if err != nil || entry.IsDir() || !lo.Contains([]string{".md", ".json", ".yaml", ".txt"}, filepath.Ext(path)) {
					return err
				}
				text, err := os.ReadFile(path)
				for _, name := range reference.FindAllString(string(text), -1) {
					name = name[:len(name)-1]
					if name == "karpenter_sh_nodepool" {
						continue // core's label for the NodePool of a NodeClaim
					}
					plain := name
					for _, suffix := range []string{"_bucket", "_sum", "_count"} {
						plain = strings.TrimSuffix(plain, suffix)
					}
					Expect(known[name] || known[plain]).To(BeTrue(), "%s names %s, which is no metric", path, name)
					looked++
				}
				return err
			})).To(Succeed())
		}
		Expect(looked).To(BeNumerically(">", 100))
	})
})
