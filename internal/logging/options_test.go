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

package logging_test

import (
	"context"
	"flag"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/logging"
)

var _ = Describe("LOG_FORMAT", func() {
	// parse parses options as core does, and returns where it would write.
	parse := func(args ...string) (string, error) {
		fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
		core, ours := &coreoptions.Options{}, &logging.Options{}
		injectables := []coreoptions.Injectable{core, ours}
		for _, injectable := range injectables {
			injectable.AddFlags(fs)
		}
		for _, injectable := range injectables {
			if err := injectable.Parse(fs, args...); err != nil {
				return "", err
			}
		}
		Expect(fs.Parse(args)).To(Succeed(), "as options do that come later")
		return coreoptions.FromContext(ours.ToContext(core.ToContext(context.Background()))).LogOutputPaths, nil
	}

	BeforeEach(func() {
		// GinkgoT().Setenv restores what was there; the variable itself must be absent, not empty.
		GinkgoT().Setenv("LOG_FORMAT", "")
		Expect(os.Unsetenv("LOG_FORMAT")).To(Succeed())
		GinkgoT().Setenv("LOG_OUTPUT_PATHS", "stdout,/var/log/karpenter.log")
	})

	DescribeTable("should have core write its log in the format that is asked for, wherever that is",
		func(format, expected string, args ...string) {
			if format != "" {
				GinkgoT().Setenv("LOG_FORMAT", format)
			}
			Expect(parse(args...)).To(Equal(expected))
		},
		Entry("as JSON by default", "", "stdout,/var/log/karpenter.log"),
		Entry("as JSON", "json", "stdout,/var/log/karpenter.log"),
		Entry("as text", "console", "console:stdout,console:/var/log/karpenter.log"),
		Entry("as text, by flags", "", "console:stderr", "--log-format=console", "--log-output-paths=stderr"),
	)
	It("should reject another format, naming the variable and the remedy", func() {
		GinkgoT().Setenv("LOG_FORMAT", "xml")
		_, err := parse()
		Expect(err).To(MatchError(And(ContainSubstring(`LOG_FORMAT="xml"`), ContainSubstring("json or console"))))
	})
	It("should be among core's options, behind core's own", func() {
		Expect(coreoptions.Injectables).To(HaveLen(2))
		Expect(coreoptions.Injectables[0]).To(BeAssignableToTypeOf(&coreoptions.Options{}))
		Expect(coreoptions.Injectables[1]).To(BeAssignableToTypeOf(&logging.Options{}))
	})
})
