// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("docs/images/top.svg", func() {
	It("should show what top prints", func() {
		joined := func(name, pool, flavor, zone, price string, age time.Duration, cpu, memory, requested, requestedMemory string) *corev1.Node {
			n := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)), Labels: map[string]string{
					corev1.LabelInstanceTypeStable: flavor, corev1.LabelTopologyZone: zone, v1alpha1.LabelLaunchPrice: price,
				}},
				Status: corev1.NodeStatus{
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			}
			if pool != "" {
				n.Labels[karpv1.NodePoolLabelKey] = pool
			}
			f.put(n, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + name, Namespace: "shop"}, Spec: corev1.PodSpec{
				NodeName: name, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(requested), corev1.ResourceMemory: resource.MustParse(requestedMemory),
				}}}},
			}})
			return n
		}
		day := 24*time.Hour + time.Minute
		joined("default-b9w4q", "default", "nix.4c_8g", "HN1", "2950", 3*day, "3920m", "5600Mi", "3500m", "3800Mi")
		joined("default-k7m2v", "default", "nix.8c_16g", "HN2", "5700", 3*day, "7910m", "12100Mi", "6900m", "11200Mi")
		draining := joined("default-x7k2p", "default", "nix.4c_8g", "HN2", "2950", 5*time.Hour+time.Minute, "3920m", "5600Mi", "600m", "700Mi")
		draining.Spec.Taints = []corev1.Taint{{Key: karpv1.DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule}}
		f.put(draining)
		joined("gpu-q4t8z", "gpu", "p2.8c_32g_1xa30", "HN1", "25900", 40*time.Minute, "7910m", "28000Mi", "7", "24000Mi")
		joined("pool-1-0", "", "b2.2c_4g", "HN1", "1231", 90*day, "1930m", "2600Mi", "900m", "1900Mi")
		f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-zd6hn", CreationTimestamp: metav1.NewTime(time.Now().Add(-10*time.Minute - time.Second)),
			Labels: map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "nix.8c_16g", corev1.LabelTopologyZone: "HN1",
				v1alpha1.LabelLaunchPrice: "5700"}}, Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://zd6hn"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waiting", Namespace: "shop"}})
		text.EnableColors()
		setEnv("FORCE_COLOR", "true")
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		got := drawing("kubectl bizfly top", f.out)
		const path = "../../../../docs/images/top.svg"
		if os.Getenv("UPDATE_DOCS") != "" {
			Expect(os.WriteFile(path, []byte(got), 0o644)).To(Succeed())
		}
		want, err := os.ReadFile(path)
		Expect(err).ToNot(HaveOccurred())
		Expect(got).To(Equal(string(want)), "UPDATE_DOCS=true writes it (docs/reference/kubectl-bizfly.md)")
	})
})

// escape begins and ends a colour in what is printed to a terminal.
var escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// drawing is a picture of a terminal in which a command has printed a text. Each part has its place, so that columns are
// aligned in every font.
func drawing(command, printed string) string {
	const charWidth, lineHeight, left, top = 7.3, 18, 16, 58
	colors := map[string]string{"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	columns := 0
	var body strings.Builder
	for row, line := range lines {
		column, color := 0, "#c9d1d9"
		part := func(piece string) {
			// Words have their place, the blanks between them none.
			for _, at := range regexp.MustCompile(`\S+( \S+)*`).FindAllStringIndex(piece, -1) {
				word := piece[at[0]:at[1]]
				x := left + charWidth*float64(column+utf8.RuneCountInString(piece[:at[0]]))
				_, _ = fmt.Fprintf(&body, `<text x="%.1f" y="%d" fill="%s" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
					x, top+row*lineHeight, color, charWidth*float64(utf8.RuneCountInString(word)), html.EscapeString(word))
			}
			column += utf8.RuneCountInString(piece)
		}
		rest := line
		for {
			at := escape.FindStringSubmatchIndex(rest)
			if at == nil {
				part(strings.TrimRight(rest, " "))
				break
			}
			part(rest[:at[0]])
			if color = colors[rest[at[2]:at[3]]]; color == "" {
				color = "#c9d1d9"
			}
			rest = rest[at[1]:]
		}
		columns = max(columns, column)
	}
	width, height := int(2*left+charWidth*float64(columns)), top+len(lines)*lineHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" role="img">
<title>%[3]s</title>
<rect width="%[1]d" height="%[2]d" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="6" fill="#ff5f56"/><circle cx="40" cy="18" r="6" fill="#ffbd2e"/><circle cx="60" cy="18" r="6" fill="#27c93f"/>
<text x="%[4]d" y="22" fill="#8b949e" text-anchor="middle">$ %[3]s</text>
%[5]s</svg>
`, width, height, html.EscapeString(command), width/2, body.String())
}
