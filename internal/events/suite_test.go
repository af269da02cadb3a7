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

package events_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

func TestEvents(t *testing.T) { suite.Run(t, "Events") }

// all makes one event with each function of the package.
func all(text string) map[string]karpevents.Event {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = "default-x", "uid"
	pool, class, config := &karpv1.NodePool{}, &v1alpha1.BizflyNodeClass{}, &v1alpha1.ProviderConfig{}
	cause := errors.New(text)
	return map[string]karpevents.Event{
		"ServerLaunched":                  events.ServerLaunched(claim, "server", "id", "nix.2c_4g", "HN1", 1234.5, "Cheapest"),
		"OfferingRefused":                 events.OfferingRefused(claim, "nix.2c_4g", "HN1", "InsufficientCapacity", cause),
		"OrderRefused":                    events.OrderRefused(claim, "nix.2c_4g", "HN1", "LaunchRequestInvalid", cause),
		"LaunchFailed":                    events.LaunchFailed(claim, "server", "nix.2c_4g", "HN1", cause),
		"LaunchNotSent":                   events.LaunchNotSent(claim, cause),
		"NodeNotRegistered":               events.NodeNotRegistered(claim, "server", "nix.2c_4g", "HN1"),
		"LaunchSlow":                      events.LaunchSlow(claim, "server", "BUILD", time.Minute),
		"LaunchOutcomeUnknown":            events.LaunchOutcomeUnknown(claim, cause),
		"LaunchIntentUnreadable":          events.LaunchIntentUnreadable(claim, cause),
		"NodeClassUnresolved":             events.NodeClassUnresolved(claim, cause),
		"CapacityTypeUnsupported":         events.CapacityTypeUnsupported(claim, text),
		"NodePoolCapacityTypeUnsupported": events.NodePoolCapacityTypeUnsupported(pool, text),
		"NoCompatibleFlavor":              events.NoCompatibleFlavor(pool, text),
		"LaunchesKeepFailing":             events.LaunchesKeepFailing(class, 3, time.Minute, cause),
		"AccountLimitReached":             events.AccountLimitReached(claim, "QuotaExceeded", time.Minute, cause),
		"QuotaTooSmall":                   events.QuotaTooSmall(claim, 4, 8192, time.Minute, cause),
		"PackageLimitReached":             events.PackageLimitReached(claim, 5, 5, time.Minute),
		"ServerDrifted":                   events.ServerDrifted(claim, "ImageDrift", "image a", text),
		"ServerUpdated":                   events.ServerUpdated(claim, text),
		"ServerUpdateFailed":              events.ServerUpdateFailed(claim, cause),
		"ServerRenamed":                   events.ServerRenamed(claim, "server", text),
		"ServerNotRunning":                events.ServerNotRunning(claim, "Stopped", text),
		"ServerRunning":                   events.ServerRunning(claim, time.Minute),
		"ServerStartFailed":               events.ServerStartFailed(claim, text),
		"GarbageCollected":                events.GarbageCollected("server", "id"),
		"WouldGarbageCollect":             events.WouldGarbageCollect("server", "id", text),
		"GarbageCollectionSuspended":      events.GarbageCollectionSuspended(6, 10, []string{text}),
		"ServerLeft":                      events.ServerLeft(claim, "id"),
		"ServerHeld":                      events.ServerHeld(claim, "id", "uid"),
		"ForeignProvider":                 events.ForeignProvider(config, text),
		"On":                              events.On(config, events.GarbageCollected("server", "id")),
		"Leftover":                        events.Leftover("disk", "server", cause),
		"NodeSmallerThanPlanned":          events.NodeSmallerThanPlanned(claim, &corev1.Node{}),
		"NodeClassStale":                  events.NodeClassStale(class, status.Condition{Type: v1alpha1.ConditionTypeNetworksReady, Message: text}),
		"NodeClassNotReady": events.NodeClassNotReady(class, status.Condition{
			Type: v1alpha1.ConditionTypeImagesReady, Reason: "ImageNotFound", Message: text}),
		"NetworkOutOfAddresses":         events.NetworkOutOfAddresses(class, []string{text, text}, time.Minute, cause),
		"InsecureJoinEndpoint":          events.InsecureJoinEndpoint(class, text),
		"WaitingOnNodeClaimTermination": events.WaitingOnNodeClaimTermination(class, []string{text}),
		"ProviderConfigRefused":         events.ProviderConfigRefused(config, "CredentialsInvalid", cause),
		"ProviderConfigApplied":         events.ProviderConfigApplied(config, text),
		"TuningRefused":                 events.TuningRefused(config, "ConfigMapNotFound", cause),
		"TuningIgnored":                 events.TuningIgnored(config, "tuning", text),
		"TuningApplied":                 events.TuningApplied(config, []string{text}),
	}
}

// files are the parsed sources of a folder, without its tests.
func files(dir string) []*ast.File {
	GinkgoHelper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	Expect(err).ToNot(HaveOccurred())
	return lo.FilterMap(names, func(name string, _ int) (*ast.File, bool) {
		if strings.HasSuffix(name, "_test.go") {
			return nil, false
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		Expect(err).ToNot(HaveOccurred())
		return file, true
	})
}

// constants are the texts of the constants of a folder whose names match.
func constants(dir string, names *regexp.Regexp) []string {
	GinkgoHelper()
	var texts []string
	for _, file := range files(dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 && names.MatchString(spec.Names[0].Name) {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					texts = append(texts, lo.Must(strconv.Unquote(literal.Value)))
				}
			}
			return true
		})
	}
	Expect(texts).ToNot(BeEmpty(), "constants in %s", dir)
	return texts
}

var _ = Describe("Events", func() {
	documented := lo.KeyBy(events.Docs, func(d events.Doc) string { return d.Reason })

	It("should each be looked at here", func() {
		var made []string
		for _, file := range files(".") {
			for _, declaration := range file.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok || !function.Name.IsExported() || function.Type.Results == nil {
					continue
				}
				if result, ok := function.Type.Results.List[0].Type.(*ast.SelectorExpr); ok && result.Sel.Name == "Event" {
					made = append(made, function.Name.Name)
				}
			}
		}
		Expect(lo.Keys(all(""))).To(ConsistOf(made))
	})
	It("should have a documented reason of one word, the documented type, an object, and a bound on their repetition", func() {
		for name, event := range all("cause") {
			Expect(event.Reason).To(MatchRegexp(`^[A-Z][A-Za-z]+$`), name)
			Expect(documented).To(HaveKey(event.Reason), name)
			Expect(event.Type).To(Equal(lo.Ternary(documented[event.Reason].Warning, corev1.EventTypeWarning, corev1.EventTypeNormal)), name)
			Expect(event.InvolvedObject).ToNot(BeNil(), name)
			Expect(strings.Join(event.DedupeValues, "")).ToNot(BeEmpty(), name)
			Expect(event.Message).ToNot(BeEmpty(), name)
		}
	})
	It("should be documented for whatever a deleted server leaves", func() {
		for _, kind := range []string{"server", "disk", "address", "node"} {
			Expect(documented).To(HaveKey(events.Leftover(kind, "server", errors.New("cause")).Reason), kind)
		}
	})
	It("should fit the API server's limit whatever the cloud says", func() {
		for name, event := range all(strings.Repeat("máy chủ ", 1000)) {
			Expect(len(event.Message)).To(BeNumerically("<", 1024), name)
		}
	})
	It("should document each reason once, completely", func() {
		Expect(lo.UniqMap(events.Docs, func(d events.Doc, _ int) string { return d.Reason })).To(HaveLen(len(events.Docs)))
		for _, doc := range append(append([]events.Doc{}, events.Docs...), events.CoreDocs...) {
			Expect(doc.Meaning).To(HaveSuffix("."), doc.Reason)
			Expect(doc.Remedy).To(HaveSuffix("."), doc.Reason)
			Expect(doc.Object).ToNot(BeEmpty(), doc.Reason)
		}
	})
	It("should document every reason that a condition can be false for", func() {
		reason := regexp.MustCompile(`^[rR]eason[A-Z]`)
		for _, dir := range []string{"../controllers/nodeclass/status", "../controllers/providerconfig", "../providers/bootstrap"} {
			for _, text := range constants(dir, reason) {
				// These are never the reason of a false condition, or of one that nobody needs to be told of again.
				if lo.Contains([]string{"CatalogNotReady", "CloudUnavailable", "AwaitingNetworks", "AwaitingZones", "AwaitingDisks", "NotAsked", "KeysIgnored", "Ignored"}, text) {
					continue
				}
				Expect(documented).To(HaveKey(text), dir)
			}
		}
	})
	It("should be made here and nowhere else", func() {
		Expect(filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return lo.Ternary(entry != nil && entry.IsDir() && (entry.Name() == ".cache" || entry.Name() == "test" || entry.Name() == "events"), fs.SkipDir, err)
			}
			content, err := os.ReadFile(path)
			Expect(string(content)).ToNot(MatchRegexp(`(karpevents|events)\.Event\{`), path)
			return err
		})).To(Succeed())
	})
})
