// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// object is what all of them have, of which spec is the part that a sample needs. A field that is not here is an error, so that a slip
// of the pen is, too: the API servers with the real definitions are not ours.
type object[S any] struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec S `json:"spec"`
}

// sampleDocuments are the documents of a file of config/samples.
func sampleDocuments(path ...string) []string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(append([]string{root, "config", "samples"}, path...)...))
	Expect(err).ToNot(HaveOccurred())
	return split(string(text))
}

func decoded[S any](text, apiVersion, kind string) S {
	GinkgoHelper()
	o := object[S]{}
	Expect(yaml.UnmarshalStrict([]byte(text), &o)).To(Succeed())
	Expect([]string{o.APIVersion, o.Kind}).To(Equal([]string{apiVersion, kind}))
	Expect(o.Metadata.Name).ToNot(BeEmpty())
	return o.Spec
}

var _ = Describe("the samples for other controllers", func() {
	metadataService := netip.MustParseAddr("169.254.169.254")
	expectMetadataService := func(cidrs []string) {
		GinkgoHelper()
		Expect(cidrs).To(HaveLen(1))
		prefix := netip.MustParsePrefix(cidrs[0])
		Expect(prefix.Contains(metadataService) && prefix.IsSingleIP()).To(BeTrue(), cidrs[0])
	}

	It("should deny pods the metadata service, and nothing else, with Cilium", func() {
		documents := sampleDocuments("metadata-block", "cilium.yaml")
		Expect(documents).To(HaveLen(1))
		policy := decoded[struct {
			Description       string                `json:"description"`
			EndpointSelector  *metav1.LabelSelector `json:"endpointSelector"`
			EnableDefaultDeny map[string]bool       `json:"enableDefaultDeny"`
			EgressDeny        []struct {
				ToCIDR []string `json:"toCIDR"`
			} `json:"egressDeny"`
		}](documents[0], "cilium.io/v2", "CiliumClusterwideNetworkPolicy")
		Expect(policy.EndpointSelector).To(Equal(&metav1.LabelSelector{}), "every pod")
		Expect(policy.EnableDefaultDeny).To(Equal(map[string]bool{"egress": false, "ingress": false}))
		Expect(policy.EgressDeny).To(HaveLen(1))
		expectMetadataService(policy.EgressDeny[0].ToCIDR)
	})
	It("should deny pods the metadata service, and nothing else, with Calico", func() {
		documents := sampleDocuments("metadata-block", "calico.yaml")
		Expect(documents).To(HaveLen(2))
		tier := decoded[struct {
			Order         int    `json:"order"`
			DefaultAction string `json:"defaultAction"`
		}](documents[0], "projectcalico.org/v3", "Tier")
		Expect(tier.DefaultAction).To(Equal("Pass"), "a tier denies by default")
		policy := decoded[struct {
			Tier              string   `json:"tier"`
			Order             int      `json:"order"`
			NamespaceSelector string   `json:"namespaceSelector"`
			Types             []string `json:"types"`
			Egress            []struct {
				Action      string `json:"action"`
				Destination struct {
					Nets []string `json:"nets"`
				} `json:"destination"`
			} `json:"egress"`
		}](documents[1], "projectcalico.org/v3", "GlobalNetworkPolicy")
		Expect(documents[0]).To(ContainSubstring("\n  name: " + policy.Tier + "\n"))
		Expect(documents[1]).To(ContainSubstring("\n  name: "+policy.Tier+"."), "Calico wants the tier in front of the name")
		Expect(policy.NamespaceSelector).To(Equal("all()"))
		Expect(policy.Types).To(Equal([]string{"Egress"}))
		Expect(policy.Egress).To(HaveLen(1))
		Expect(policy.Egress[0].Action).To(Equal("Deny"))
		expectMetadataService(policy.Egress[0].Destination.Nets)
	})

	// identity is how cosign is told to verify a release.
	identity := func() (subject, issuer string) {
		GinkgoHelper()
		text, err := os.ReadFile(filepath.Join(root, "docs", "contribute", "release.md"))
		Expect(err).ToNot(HaveOccurred())
		value := func(name string) string {
			match := regexp.MustCompile(`(?m)^` + name + `='?([^'\n]+)'?$`).FindStringSubmatch(string(text))
			Expect(match).ToNot(BeEmpty(), name)
			return match[1]
		}
		return value("BY"), value("ISSUER")
	}
	expectIdentity := func(subjectRegExp, issuer string) {
		GinkgoHelper()
		subject, documented := identity()
		Expect(issuer).To(Equal(documented))
		Expect(subject).To(MatchRegexp(subjectRegExp))
		Expect(strings.TrimSuffix(subject, "1.2.3") + "1.2.3-rc.1").To(MatchRegexp(subjectRegExp))
		for _, other := range []string{
			strings.Replace(subject, "refs/tags/v1.2.3", "refs/heads/main", 1), strings.Replace(subject, "publish.yaml", "ci.yaml", 1),
			strings.Replace(subject, "github.com/bizflycloud/", "github.com/somebody/", 1), strings.Replace(subject, "github.com", "github-com", 1),
			subject + "@refs/heads/x y", "https://example.com/" + subject,
		} {
			Expect(other).ToNot(Or(Equal(subject), MatchRegexp(subjectRegExp)))
		}
	}
	It("should admit only what the release workflow has signed, with Kyverno", func() {
		documents := sampleDocuments("signed-image", "kyverno.yaml")
		Expect(documents).To(HaveLen(1))
		policy := decoded[struct {
			Background           *bool `json:"background"`
			WebhookConfiguration struct {
				TimeoutSeconds int    `json:"timeoutSeconds"`
				FailurePolicy  string `json:"failurePolicy"`
			} `json:"webhookConfiguration"`
			Rules []struct {
				Name  string `json:"name"`
				Match struct {
					Any []struct {
						Resources struct {
							Kinds      []string `json:"kinds"`
							Namespaces []string `json:"namespaces"`
						} `json:"resources"`
					} `json:"any"`
				} `json:"match"`
				VerifyImages []struct {
					ImageReferences []string `json:"imageReferences"`
					FailureAction   string   `json:"failureAction"`
					MutateDigest    bool     `json:"mutateDigest"`
					VerifyDigest    bool     `json:"verifyDigest"`
					Required        bool     `json:"required"`
					Attestors       []struct {
						Entries []struct {
							Keyless struct {
								Issuer        string `json:"issuer"`
								SubjectRegExp string `json:"subjectRegExp"`
								Rekor         struct {
									URL string `json:"url"`
								} `json:"rekor"`
							} `json:"keyless"`
						} `json:"entries"`
					} `json:"attestors"`
				} `json:"verifyImages"`
			} `json:"rules"`
		}](documents[0], "kyverno.io/v1", "ClusterPolicy")
		Expect(policy.Rules).To(HaveLen(1))
		rule := policy.Rules[0]
		Expect(rule.Match.Any[0].Resources.Namespaces).To(Equal([]string{namespace}))
		Expect(rule.VerifyImages).To(HaveLen(1))
		images := rule.VerifyImages[0]
		Expect(images.ImageReferences).To(Equal([]string{"*"}), "no other image runs there")
		Expect(images.FailureAction).To(Equal("Enforce"))
		Expect(images.Required && images.VerifyDigest).To(BeTrue())
		keyless := images.Attestors[0].Entries[0].Keyless
		expectIdentity(keyless.SubjectRegExp, keyless.Issuer)
	})
	It("should admit only what the release workflow has signed, with sigstore's policy-controller", func() {
		documents := sampleDocuments("signed-image", "policy-controller.yaml")
		Expect(documents).To(HaveLen(1))
		policy := decoded[struct {
			Mode   string `json:"mode"`
			Images []struct {
				Glob string `json:"glob"`
			} `json:"images"`
			Authorities []struct {
				Name    string `json:"name"`
				Keyless struct {
					URL        string `json:"url"`
					Identities []struct {
						Issuer        string `json:"issuer"`
						SubjectRegExp string `json:"subjectRegExp"`
					} `json:"identities"`
				} `json:"keyless"`
				CTLog struct {
					URL string `json:"url"`
				} `json:"ctlog"`
			} `json:"authorities"`
		}](documents[0], "policy.sigstore.dev/v1beta1", "ClusterImagePolicy")
		Expect(policy.Mode).To(Equal("enforce"))
		image := readValues()["controller"].(map[string]any)["image"].(map[string]any)["repository"].(string)
		Expect(policy.Images).To(HaveExactElements(HaveField("Glob", image+"*")))
		Expect(policy.Authorities).To(HaveLen(1), "one of several would be enough")
		Expect(policy.Authorities[0].Keyless.Identities).To(HaveLen(1))
		expectIdentity(policy.Authorities[0].Keyless.Identities[0].SubjectRegExp, policy.Authorities[0].Keyless.Identities[0].Issuer)
	})
})
