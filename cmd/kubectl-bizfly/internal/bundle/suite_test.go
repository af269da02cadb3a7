// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/bundle"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestBundle(t *testing.T) { suite.Run(t, "Bundle") }

var _ = Describe("Redact", func() {
	DescribeTable("should remove the value of a field whose name is one of a secret, and keep the others", func(text string) {
		cleaned := bundle.Redact(&redact.Redactor{}, text)
		Expect(cleaned).ToNot(ContainSubstring("MARKED"))
		Expect(cleaned).To(And(ContainSubstring("[REDACTED]"), ContainSubstring("kept")))
	},
		Entry("a block of YAML", "a:\n  password: |\n    MARKED\n\n    MARKED\n  name: kept\n"),
		Entry("a folded block in a list", "- token: >-\n    MARKED\n    MARKED\n- name: kept\n"),
		Entry("a block of YAML in a JSON string", `{"message":"password: |\n  MARKED\nname: kept"}`),
		Entry("a registry's credentials", `{"auths":{"kept.example":{"auth":"MARKED=="}}}`),
		Entry("a registry's credentials in a JSON string", `{"config":"{\"auths\":{\"kept\":{\"auth\":\"MARKED\"}}}"}`),
		Entry("an object", `{"secret":{"value":"MARKED","more":{"x":"}MARKED"}},"name":"kept"}`),
		Entry("a list", `{"bke_cluster_token":["MARKED","MARKED"],"name":"kept"}`),
		Entry("a list in a JSON string", `{"detail":"{\"token\":[\"MARKED\",\"]MARKED\"],\"name\":\"kept\"}"}`),
		Entry("an object that is cut off", `kept {"credentials":{"value":"MARKED`),
		Entry("a command line", "kubeadm join --token MARKED --name kept"),
		Entry("a command line with quotes", "x --db-password 'MARKED MARKED' --name kept"),
		Entry("the source of a MySQL driver", "dsn=kept user:MARKED@tcp(db:3306)/db"),
		Entry("a query in a query", "?next=kept%26client_secret%3DMARKED&name=kept"),
		Entry("XML", "<password>MARKED</password><name>kept</name>"),
	)
	DescribeTable("should leave other texts alone", func(text string) {
		Expect(bundle.Redact(&redact.Redactor{}, text)).To(Equal(text))
	},
		Entry("a message", "Flavor 2c_4g could not be found, abc."),
		Entry("an address", `Post "https://manage.bizflycloud.vn/api/token": dial tcp 10.0.0.1:443: connection refused`),
		Entry("an address with a time", "https://manage.bizflycloud.vn:443/api at 10:00, by x@example.org"),
		Entry("an author", `{"author":"x","authenticated":true} --token-ttl`),
		Entry("YAML with a block that is none of a secret", "script: |\n  echo\nname: x\n"),
		Entry("a switch", `{"createToken":true,"secret":null}`),
		Entry("YAML without a value", "tokens:\n- name: x\nsecretRef:\n  name: y\n"),
		Entry("a certificate", "-----BEGIN CERTIFICATE-----\nMHc\n-----END CERTIFICATE-----"),
	)
})
