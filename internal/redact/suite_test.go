// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package redact_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestRedact(t *testing.T) { suite.Run(t, "Redact") }

var _ = Describe("Redactor", func() {
	var r *redact.Redactor
	BeforeEach(func() { r = &redact.Redactor{} })
	DescribeTable("should find a known secret in every spelling", func(text string) {
		r.LearnCredentials(`s3cr"et&/value`)
		Expect(r.Text(text)).ToNot(Or(ContainSubstring("s3cr"), ContainSubstring("czNjc")))
	},
		Entry("plain", `x s3cr"et&/value y`), Entry("JSON", `"x":"s3cr\"et\u0026/value"`), Entry("JSON in JSON", `"{\"x\":\"s3cr\\\"et\\u0026/value\"}"`),
		Entry("others' JSON", `"x":"s3cr\"et&/value"`), Entry("the same in JSON", `"{\"x\":\"s3cr\\\"et&/value\"}"`),
		Entry("query", `?a=s3cr%22et%26%2Fvalue`), Entry("path", `/s3cr%22et&%2Fvalue`), Entry("base64", `czNjciJldCYvdmFsdWU=`),
	)
	DescribeTable("should remove the value of a field whose name is one of a secret, and keep the others", func(text string) {
		cleaned := r.Text(text)
		Expect(cleaned).ToNot(ContainSubstring("MARKED"))
		Expect(cleaned).To(And(ContainSubstring("[REDACTED]"), ContainSubstring("kept")))
	},
		Entry("JSON", `{"password": "MARKED-1", "name":"kept"}`),
		Entry("JSON with quotes inside", `{"user_data":"#!/bin/sh\necho \"MARKED\"","name":"kept"}`),
		Entry("JSON with an escaped quote inside", `{"password": "abc\"MARKED", "name":"kept"}`),
		Entry("JSON in JSON", `{"detail":"{\"bke_cluster_token\":\"MARKED\",\"name\":\"kept\"}"}`),
		Entry("JSON in JSON with an escaped quote inside", `{"detail":"{\"password\":\"abc\\\"MARKED\",\"name\":\"kept\"}"}`),
		Entry("JSON in JSON with a backslash at its end", `{"detail":"{\"password\":\"MARKED\\\\\",\"name\":\"kept\"}"}`),
		Entry("a number", `{"token": 4711, "secret": 12e4, "password":"MARKED", "name":"kept"}`),
		Entry("cut off", `kept {"credential_secret":"MARKED`),
		Entry("form", `credential_secret=MARKED&name=kept`),
		Entry("header", `kept Authorization: Basic MARKED`),
		Entry("header in lines", "kept\nX-Auth-Token: MARKED\nX-Name: kept"),
		Entry("Python", `{'X-Auth-Token': 'MARKED', 'name': 'kept'}`),
		Entry("YAML with words", "kept: 1\ntoken: first MARKED\n"),
		Entry("YAML with quotes", `kept token: "first \"MARKED\" last"`),
		Entry("shell", `kept DB_PWD="first MARKED" more`),
		Entry("shell without quotes", `API_KEY=MARKED,MARKED name=kept`),
		Entry("a cookie", "kept\nSet-Cookie: sid=MARKED; path=/MARKED\nX: kept"),
		Entry("a cookie that is sent", "cookie: session=MARKED\nkept: 1"),
		Entry("in a JSON string", `{"message":"token: first MARKED","name":"kept"}`),
	)
	DescribeTable("should remove what looks like a secret wherever it is", func(text, cleaned string) {
		Expect(r.Text(text)).To(Equal(cleaned))
	},
		Entry("the password of a proxy", "via http://proxyuser:Pr0xy@proxy.corp:3128 now", "via http://[REDACTED]@proxy.corp:3128 now"),
		Entry("a password of odd characters", "postgres://pay:a/b@c:d@db/pay", "postgres://[REDACTED]@db/pay"),
		Entry("a user who is a token", `"https://ghp_MARKED@github.com/x"`, `"https://[REDACTED]@github.com/x"`),
		Entry("a JSON Web Token", "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl.", "jwt [REDACTED]"),
		Entry("a token of K3s", "join K10abcdef::server:0123456789abcdef now", "join [REDACTED] now"),
		Entry("a token of K3s in YAML", `k3s: 'K10aaa::server:tagvalue'`, `k3s: '[REDACTED]'`),
		Entry("a token of kubeadm", "kubeadm join 10.0.0.1:6443 with abcdef.0123456789abcdef", "kubeadm join 10.0.0.1:6443 with [REDACTED]"),
		Entry("a private key", "a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb", "a\n[REDACTED]\nb"),
		Entry("a private key that is cut off", "a -----BEGIN PRIVATE KEY-----\\nMHc", "a [REDACTED]"),
	)
	DescribeTable("should leave other texts alone", func(text string) {
		r.LearnCredentials("abc", "")
		Expect(r.Text(text)).To(Equal(text))
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
	It("should find letters with accents as Python writes them in JSON, and in JSON in JSON", func() {
		r.LearnRequest("echo\n'khoá 🔑'")
		Expect(r.Text(`"echo\n'kho\u00e1 \ud83d\udd11'" "echo\\n'kho\\u00e1 \\ud83d\\udd11'"`)).
			To(Equal(`"[REDACTED]" "[REDACTED]"`))
	})
	It("should learn the join tokens in user data, in every spelling", func() {
		r.LearnRequest("#!/bin/sh\njoin K10abcdef::server:p&w\nkubeadm join --token abcdef.0123456789abcdef\n")
		Expect(r.Text("?a=K10abcdef%3A%3Aserver%3Ap%26w&b=YWJjZGVmLjAxMjM0NTY3ODlhYmNkZWY=")).To(Equal("?a=[REDACTED]&b=[REDACTED]"))
	})
	It("should remember 1 MiB of request secrets, and never drop a password or a token", func() {
		r.LearnCredentials("the-password")
		r.LearnToken("the-newest-one")
		of := func(n int) string { return fmt.Sprintf("launch %d ", n) + strings.Repeat("x ", 32<<10) + "end" }
		r.LearnRequest("the-join-value")
		for n := range 100 {
			r.LearnRequest("the-join-value", of(n))
		}
		Expect(r.Text("the-password the-newest-one the-join-value")).To(Equal("[REDACTED] [REDACTED] [REDACTED]"))
		for n := range 100 {
			if n >= 100-15 {
				Expect(r.Text(of(n))).To(Equal("[REDACTED]"))
			} else if n < 100-17 {
				Expect(r.Text(of(n))).To(HavePrefix("launch"))
			}
		}
	})
	It("should remember one secret that is larger than all that it remembers", func() {
		large := "large " + strings.Repeat("x", 2<<20)
		r.LearnRequest("before-it", large)
		Expect(r.Text(large + " before-it")).To(Equal("[REDACTED] before-it"))
	})
})
