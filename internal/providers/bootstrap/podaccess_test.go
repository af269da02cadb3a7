// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The script that keeps pods off the metadata service", func() {
	// script is that script.
	script := func() string {
		GinkgoHelper()
		parts := pieces(render(input(&v1alpha1.BizflyNodeClass{})).UserData)
		Expect(parts).To(HaveExactElements(piece{"text/x-shellscript", parts[0].text}, piece{"text/x-shellscript", ownScript}))
		return parts[0].text
	}
	It("should let no server join whose rule fails, and hold before pods and after a reboot", func() {
		const heredoc = "\ncat > /etc/systemd/system/karpenter-metadata-block.service <<'UNIT'\n"
		before, rest, found := strings.Cut(script(), heredoc)
		Expect(found).To(BeTrue())
		Expect(before).To(And(HavePrefix("#!/bin/bash\n"), MatchRegexp("\nset -euo pipefail\n(#.*\n)*trap '.* sleep infinity' ERR\n")))
		block, after, _ := strings.Cut(rest, "\nUNIT\n")
		Expect(after).To(Equal("systemctl daemon-reload\nsystemctl enable --now karpenter-metadata-block.service\n"))
		settings := map[string]string{}
		section := ""
		for line := range strings.SplitSeq(block, "\n") {
			if name, value, assigned := strings.Cut(line, "="); assigned {
				Expect(settings).ToNot(HaveKey(section+name), "one of each")
				settings[section+name] = value
			} else if line != "" {
				Expect(line).To(MatchRegexp(`^\[(Unit|Service|Install)\]$`))
				section = line
			}
		}
		const rule = "PREROUTING --destination 169.254.169.254 --jump DROP"
		Expect(settings).To(And(
			HaveKeyWithValue("[Unit]Before", ContainSubstring("kubelet.service")),
			HaveKeyWithValue("[Service]Type", "oneshot"),
			HaveKeyWithValue("[Service]ExecStart", HavePrefix("/bin/sh -c 'iptables --wait --table raw --insert "+rule+" || nft --file ")),
			HaveKeyWithValue("[Service]ExecStartPre", "-/bin/sh -c 'iptables --wait --table raw --delete "+rule+"'"), // however often it starts, there is one
			HaveKeyWithValue("[Install]WantedBy", "multi-user.target"),
		))
	})
	It("should be before what the user gives, also before cloud-config", func() {
		nodeClass := custom("#cloud-config\nruncmd: [true]\n")
		nodeClass.Spec.MetadataOptions = nil
		Expect(pieces(render(input(nodeClass)).UserData)).To(HaveExactElements(
			piece{"text/x-shellscript", script()}, piece{"text/cloud-config", "#cloud-config\nruncmd: [true]\n"}))
	})
	It("should not change which nodes drift", func() {
		blocked := custom("#!/bin/bash\n")
		blocked.Spec.MetadataOptions = nil
		Expect(render(input(blocked)).UserDataHash).To(Equal(render(input(custom("#!/bin/bash\n"))).UserDataHash))
	})
	DescribeTable("should be added only where cloud-init runs it, and else say why not",
		func(nodeClass *v1alpha1.BizflyNodeClass, singleScript bool, reason string) {
			nodeClass.Spec.MetadataOptions = nil
			nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: "image", SingleScript: singleScript}}
			resolution, err := provider().Resolve(ctx, nodeClass)
			Expect(err).ToNot(HaveOccurred())
			Expect(lo.FromPtr(resolution.PodAccess).Reason).To(Equal(reason))
			Expect(strings.Contains(render(input(nodeClass)).UserData, "169.254.169.254 drop")).To(Equal(reason == ""))
		},
		Entry("BKE's script", bke(), false, ""),
		Entry("BKE's script on Flatcar", bke(), true, bootstrap.ReasonSingleScript),
		Entry("a script", custom("#!/bin/bash"), false, ""),
		Entry("a script on Flatcar", custom("#!/bin/bash"), true, bootstrap.ReasonSingleScript),
		Entry("Ignition", custom(`{"ignition": {"version": "3.4.0"}}`), false, bootstrap.ReasonOtherUserData),
		Entry("a document in a document", custom("Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: multipart/mixed; boundary=y\n\n"+
			"--y\nContent-Type: text/x-shellscript\n\n#!/bin/bash\n--y--\n--x--\n"), false, bootstrap.ReasonOtherUserData),
	)
	It("should not be added where pods are allowed", func() {
		output := render(input(custom("#!/bin/bash")))
		Expect(output.UserData).To(Equal("#!/bin/bash"))
		Expect(output.PodAccess).ToNot(HaveOccurred())
	})
})
