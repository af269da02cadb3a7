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
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corelogging "sigs.k8s.io/karpenter/pkg/operator/logging"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/logging"
)

func TestLogging(t *testing.T) { suite.Run(t, "Logging") }

var _ = Describe("The console format", func() {
	var path string
	// logger is core's own, writing to our path.
	logger := func(ctx SpecContext, level string) *zap.Logger {
		return corelogging.NewLogger((&coreoptions.Options{
			LogLevel: level, LogOutputPaths: logging.ConsolePaths(path), LogErrorOutputPaths: "stderr",
		}).ToContext(ctx), "controller")
	}
	written := func() string {
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}

	BeforeEach(func() { path = filepath.Join(GinkgoT().TempDir(), "controller.log") })

	It("should show what core's logger writes, field by field and in their order", func(ctx SpecContext) {
		logger(ctx, "info").Named("catalog").Error("refreshing failed", zap.Error(errors.New("no answer")),
			zap.Duration("after", 3*time.Second), zap.Strings("parts", []string{"flavors", "zones"}))
		Expect(written()).
			To(MatchRegexp(`(?m)^\d{4}-\d\d-\d\dT\S+\tERROR\tcontroller\.catalog\trefreshing failed\t` +
				`\{.*"error": "no answer", "after": "3s", "parts": \["flavors","zones"\]\}\n`))
	})
	It("should leave the level to core", func(ctx SpecContext) {
		logger(ctx, "error").Info("quiet")
		logger(ctx, "debug").Debug("loud")
		Expect(written()).To(And(Not(ContainSubstring("quiet")), ContainSubstring("DEBUG\tcontroller\tloud"), ContainSubstring(`"caller": "logging/suite_test.go`)))
	})
	It("should lose no line that is not core's", func() {
		sink, closeAll, err := zap.Open(logging.ConsolePaths(path))
		Expect(err).NotTo(HaveOccurred())
		for _, line := range []string{"plain text\n", `["no object"]` + "\n", `{"level":"LOUD","message":"unknown level"}` + "\n", `{"message":1}` + "\n",
			`{"message":"cut`} {
			Expect(sink.Write([]byte(line))).To(Equal(len(line)))
		}
		closeAll()
		Expect(written()).To(Equal("plain text\n[\"no object\"]\n{\"level\":\"LOUD\",\"message\":\"unknown level\"}\n{\"message\":1}\n{\"message\":\"cut"))
	})
	It("should name the path that cannot be opened", func() {
		_, _, err := zap.Open(logging.ConsolePaths("/nonexistent/controller.log"))
		Expect(err).To(MatchError(ContainSubstring("/nonexistent/controller.log")))
	})

	DescribeTable("should be asked for by paths", func(given, expected string) { Expect(logging.ConsolePaths(given)).To(Equal(expected)) },
		Entry("core's default", "stdout", "console:stdout"),
		Entry("several", "stdout,/var/log/karpenter.log", "console:stdout,console:/var/log/karpenter.log"),
		Entry("those that are ours already", "console:stderr", "console:stderr"),
	)
})
