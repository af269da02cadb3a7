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

// Package chaos_test breaks everything around the controller and looks whether its promises hold: tier A in process, in
// worlds whose time is simulated and whose every misfortune follows from a seed; tier B with real processes.
package chaos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
)

// suite is what worlds with a time of their own are made in.
var suite *testing.T

func TestChaos(t *testing.T) {
	suite = t
	log.SetLogger(logr.Discard())
	lifecycle.LaunchTimeout = 3 * time.Minute // as internal/options sets it
	RegisterFailHandler(Fail)
	RunSpecs(t, "Chaos")
}

// number reads a number from the environment.
func number(name string, fallback int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%q is not a number", name, text))
	}
	return value
}

// batch is how many seeds one spec runs, so that several processes can share them.
const batch = 10

// live lives through the world of one seed.
func live(seed int64) *world {
	w := newWorld(seed)
	synctest.Test(suite, func(t *testing.T) { w.run(t.Context()) })
	return w
}

// report says which promises a world has broken and how to see it again. What happened in it goes to a file.
func report(w *world) string {
	text := fmt.Sprintf("in world %d:\n  %s\nreplay it with: make chaos SEED=%d RUNS=1", w.seed, strings.Join(w.violations, "\n  "), w.seed)
	directory := os.Getenv("CHAOS_LOGS")
	if directory == "" {
		return text
	}
	file := filepath.Join(directory, fmt.Sprintf("world-%d.log", w.seed))
	if err := os.WriteFile(file, []byte(strings.Join(w.lines, "\n")+"\n"), 0o600); err != nil {
		return text + "\nits log cannot be written: " + err.Error()
	}
	return text + "\nwhat happened: " + file
}

var _ = Describe("Tier A", func() {
	first, runs := number("SEED", 1), number("RUNS", 12)
	for start := first; start < first+runs; start += batch {
		end := min(start+batch, first+runs)
		It(fmt.Sprintf("should keep every promise in the worlds %d to %d", start, end-1), func() {
			var failures []string
			for seed := start; seed < end; seed++ {
				if w := live(seed); len(w.violations) > 0 {
					failures = append(failures, report(w))
				}
			}
			Expect(failures).To(BeEmpty(), strings.Join(failures, "\n\n"))
		})
	}

	// All chance follows from the seed, but two things that happen at the very same moment have no order, not even here, so
	// that about one life in thirty takes another turn: such a world gets a third life.
	It("should live through the same worlds twice in the same way", func() {
		const worlds = 4
		var differences []string
		for first, n := number("SEED", 1), int64(0); n < worlds; n++ {
			once, again := course(first+n), course(first+n)
			if slices.Equal(once, again) {
				continue
			}
			if third := course(first + n); slices.Equal(third, once) || slices.Equal(third, again) {
				continue
			}
			gone, come := lo.Difference(once, again)
			differences = append(differences, fmt.Sprintf("world %d:\n  only once: %s\n  only again: %s", first+n,
				strings.Join(gone[:min(len(gone), 3)], "\n    "), strings.Join(come[:min(len(come), 3)], "\n    ")))
		}
		Expect(differences).To(BeEmpty(), strings.Join(differences, "\n"))
	})
})

// course is all that happens in the world of a seed, and when, in an order that does not depend on who was first to write
// down what happened at one moment.
func course(seed int64) []string {
	return slices.Sorted(slices.Values(live(seed).lines))
}
