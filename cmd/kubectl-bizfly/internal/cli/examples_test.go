// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// page is the documentation of the plugin. Each example in it is "$ kubectl bizfly ..." and what that prints, where a line ... stands for
// lines that it leaves out.
const page = "../../../../docs/reference/kubectl-bizfly.md"

// The commands of the page are run in a cluster with the NodePool "default", two nodes and a web shop.
var _ = Describe("docs/reference/kubectl-bizfly.md", func() {
	It("should have the rules beside it, and the reasons of top --idle", func() {
		table := "| code | severity | about | why it matters |\n| --- | --- | --- | --- |\n"
		for _, d := range rules.Codes() {
			table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", d.Code, d.Severity, d.About, lo.CoalesceOrEmpty(d.Why, "depends on what was found"))
		}
		reasons := "| reason | it says | what ends it |\n| --- | --- | --- |\n"
		for _, d := range rules.Reasons() {
			reasons += fmt.Sprintf("| `%s` | %s | %s |\n", d.Code, d.About, d.Why)
		}
		rulesPage := filepath.Join(filepath.Dir(examplesPage), "rules.md")
		for of, list := range map[string]string{
			"rules": table, "rules of why": "`" + strings.Join(rules.PodCodes(), "`, `") + "`\n", "reasons": reasons,
		} {
			path := lo.Ternary(of == "reasons", examplesPage, rulesPage)
			begin, end := "<!-- "+of+" -->\n", "<!-- end of "+of+" -->"
			before, rest, found := strings.Cut(string(lo.Must(os.ReadFile(path))), begin)
			written, after, ended := strings.Cut(rest, end)
			Expect(found && ended).To(BeTrue())
			if os.Getenv("UPDATE_DOCS") != "" {
				Expect(os.WriteFile(path, []byte(before+begin+list+end+after), 0o644)).To(Succeed())
				written = list
			}
			Expect(written).To(Equal(list), "UPDATE_DOCS=true writes it")
		}
	})

	It("should show what the commands print", func() {
		setEnv("BKE_JOIN_ENDPOINT", f.URL+"/engine/cluster_join/c")
		f.install()
		f.apply(pools + "---\n" + web)
		readyPool(f)
		GinkgoT().Chdir(GinkgoT().TempDir())
		Expect(os.WriteFile("basic.yaml", []byte(strings.ReplaceAll(pools, "[premium]", "[basic]")), 0o600)).To(Succeed())
		Expect(os.WriteFile("premium.yaml", []byte(pools), 0o600)).To(Succeed())
		Expect(os.WriteFile("pods.csv", []byte("name,count,cpu,memory\napi,12,500m,1Gi\nworker,4,2,6Gi\n"), 0o600)).To(Succeed())
		f.AddWorkerPool(cloud.PoolSpec{Name: "pool-1", Servers: []string{f.AddServer(cloud.ServerSpec{Name: "pool-1-0"}).ID}, MinSize: 1, MaxSize: 3})
		resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3900m"), corev1.ResourceMemory: resource.MustParse("6900Mi")}
		ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, name := range []string{"default-x7k2p", "default-b9w4q"} {
			f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-5*time.Hour - time.Minute)),
				Labels: map[string]string{
					karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "p2.4c_8g", corev1.LabelTopologyZone: "HN1", v1alpha1.LabelLaunchPrice: "2950",
				}}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + name}, Status: corev1.NodeStatus{Allocatable: resources, Conditions: ready}})
		}
		for i, cpu := range []string{"1500m", "600m", "2"} {
			f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("api-%d", i), Namespace: "shop"}, Spec: corev1.PodSpec{
				NodeName: []string{"default-x7k2p", "default-b9w4q"}[i%2], Containers: []corev1.Container{{Name: "api", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1500Mi")},
				}}},
			}})
		}
		read, err := os.ReadFile(examplesPage)
		Expect(err).ToNot(HaveOccurred())
		text := string(read)
		for _, block := range strings.Split(text, "```console\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			command, want, _ := strings.Cut(block, "\n")
			args := strings.Fields(strings.TrimPrefix(command, "$ kubectl bizfly "))
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			if args[0] == "diff" { // no other example needs NodeClaims
				for _, name := range []string{"default-x7k2p", "default-b9w4q"} {
					claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
						karpv1.NodePoolLabelKey: "default", v1alpha1.LabelInstanceCategory: "premium",
					}}, Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{
						Group: v1alpha1.Group, Kind: v1alpha1.NodeClassKind, Name: "default",
					}}, Status: karpv1.NodeClaimStatus{NodeName: name}}
					claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
					f.put(claim)
				}
			}
			Expect(f.run(args...)).To(BeNumerically("<", cli.ExitFailure), "%s: %s", command, f.err)
			got := trimmed(strings.ReplaceAll(f.out, strings.TrimPrefix(f.URL, "http://"), "sandbox"))
			if left := strings.Split("\n"+trimmed(want), "\n...\n"); len(left) > 1 {
				for i := range left {
					left[i] = regexp.QuoteMeta(left[i])
				}
				Expect("\n"+got).To(MatchRegexp(`(?s)^`+strings.Join(left, `\n(.*\n)?`)+`$`), "correct it by hand: %s", command)
				continue
			}
			if os.Getenv("UPDATE_DOCS") != "" {
				text = strings.Replace(text, block, command+"\n"+got, 1)
				continue
			}
			Expect(got).To(Equal(trimmed(want)), command)
		}
		if os.Getenv("UPDATE_DOCS") != "" {
			Expect(os.WriteFile(examplesPage, []byte(text), 0o600)).To(Succeed())
		}
	})
})

// examplesPage is absolute: the spec changes the working directory.
var examplesPage = func() string {
	here, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return here + "/" + page
}()

// trimmed is text without the blanks at the end of lines, which editors remove.
func trimmed(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}
