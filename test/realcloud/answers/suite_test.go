// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package answers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/realcloud/answers"
)

func TestAnswers(t *testing.T) { suite.Run(t, "Answers") }

const serverID = "366d5fa3-49d2-4c0d-bde5-f542bddb212a"

// recorded asks a server that answers with this body, through a recorder.
func recorded(ctx SpecContext, method, path, body string, private ...string) (*answers.Recorder, *answers.Document) {
	GinkgoHelper()
	return asked(ctx, "the-token", method, path, body, private...)
}

// rejected asks it with another token, which it answers with status 401.
func rejected(ctx SpecContext, method, path, body string, private ...string) (*answers.Recorder, *answers.Document) {
	GinkgoHelper()
	return asked(ctx, "an-old-token", method, path, body, private...)
}

func asked(ctx SpecContext, token, method, path, body string, private ...string) (*answers.Recorder, *answers.Document) {
	GinkgoHelper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if r.Header.Get("X-Auth-Token") != "the-token" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, body)
	}))
	DeferCleanup(server.Close)
	recorder := answers.NewRecorder(http.DefaultTransport, private...)
	request, err := http.NewRequestWithContext(ctx, method, server.URL+path, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("X-Auth-Token", token)
	response, err := recorder.RoundTrip(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(got)).To(Equal(body), "the client gets the complete answer")
	return recorder, document(recorder)
}

func document(recorder *answers.Recorder) *answers.Document {
	return &answers.Document{Version: answers.Version, Cloud: "sandbox", Answers: recorder.Answers()}
}

func answer(shape map[string][]string, values ...map[string][]string) *answers.Document {
	a := &answers.Answer{Count: 1, ContentTypes: []string{"application/json"}, Shape: shape}
	for _, v := range values {
		a.Values = v
	}
	return &answers.Document{Answers: map[string]*answers.Answer{"GET cloud_server/servers 200": a}}
}

var _ = Describe("The recorder", func() {
	It("should record types by path, independent of region and host", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodGet, "/hcm/iaas-cloud/api/servers?name=web",
			`[{"id":"`+serverID+`","status":"ACTIVE","flavor":{"ram":2048}},{"id":null,"status":"BUILD","locked":true}]`)
		Expect(d.Answers).To(HaveKey("GET cloud_server/servers?name 200"))
		a := d.Answers["GET cloud_server/servers?name 200"]
		Expect(a.Shape).To(Equal(map[string][]string{
			"": {"array"}, "[]": {"object"}, "[].id": {"null", "string"}, "[].status": {"string"},
			"[].flavor": {"object"}, "[].flavor.ram": {"number"}, "[].locked": {"boolean"},
		}))
		Expect(a.Values).To(Equal(map[string][]string{"[].status": {"ACTIVE", "BUILD"}}))
		Expect(a.ContentTypes).To(ConsistOf("application/json"))
	})
	It("should write down no identifier of a path, also not one that does not look like it", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodGet, "/api/kubernetes-engine/_/zdckkshu1he44fsb", `{}`, "zdckkshu1he44fsb")
		Expect(d.Answers).To(HaveKey("GET kubernetes_engine/_/{id} 200"))
		recorder, _ := recorded(ctx, http.MethodGet, "/api/kubernetes-engine/_/zdckkshu1he44fsb", `{}`)
		recorder.Hide("zdckkshu1he44fsb", "")
		Expect(recorder.Answers()).To(BeEmpty(), "what is known later was written down before")
		_, d = recorded(ctx, http.MethodDelete, "/iaas-cloud/api/servers/"+serverID, `{}`)
		Expect(d.Answers).To(HaveKey("DELETE cloud_server/servers/{id} 200"))
	})
	It("should write down none of what users write, and no keys of theirs", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodGet, "/iaas-cloud/api/servers/"+serverID,
			`{"name":"payroll","metadata":{"bke_cluster_token":"hush","status":"secret"},"addresses":{"priv_me@example.com":[{"addr":"10.1.2.3"}]}}`)
		a := d.Answers["GET cloud_server/servers/{id} 200"]
		Expect(a.Shape).To(HaveKey("metadata.*"))
		Expect(a.Shape).To(HaveKeyWithValue("addresses.*[].addr", []string{"string"}))
		Expect(a.Values).To(BeEmpty())
	})
	It("should keep the words of a rejection without personal data", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodPost, "/iaas-cloud/api/servers",
			`{"code":"QUOTA","message":"user me@example.com of 0d9f3c527a1e4b529a556f6f5f0c1b7a at 10.1.2.3: không đủ hạn mức"}`)
		Expect(d.Answers["POST cloud_server/servers 200"].Values).To(Equal(map[string][]string{
			"code": {"QUOTA"}, "message": {"user <email> of <id> at <address>: không đủ hạn mức"},
		}))
	})
	It("should keep each text of a rejection and a task, but nothing private or a user's", func(ctx SpecContext) {
		_, d := rejected(ctx, http.MethodPost, "/iaas-cloud/api/servers",
			`{"badRequest":{"detail":"Khu vực hush-hush đã hết"},"errors":[{"flavor":"sold out"}],"metadata":{"bke_cluster_token":"T"}}`, "hush-hush")
		Expect(d.Answers["POST cloud_server/servers 401"].Values).To(Equal(map[string][]string{
			"badRequest.detail": {"Khu vực <private> đã hết"}, "errors[].flavor": {"sold out"},
		}))
		_, d = recorded(ctx, http.MethodGet, "/iaas-cloud/api/tasks/"+serverID, `{"ready":true,"result":{"exception":"NoValidHost"}}`)
		Expect(d.Answers["GET cloud_server/tasks/{id} 200"].Values).To(HaveKeyWithValue("result.exception", []string{"NoValidHost"}))
	})
	It("should keep the beginning of a rejection that is no JSON", func(ctx SpecContext) {
		_, d := rejected(ctx, http.MethodPost, "/iaas-cloud/api/servers", `<html>Request blocked at 10.1.2.3</html>`)
		Expect(d.Answers["POST cloud_server/servers 401"].Values).To(Equal(map[string][]string{"": {"<html>Request blocked at <address></html>"}}))
	})
	It("should name what is no JSON, and what is nothing", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodGet, "/iaas-cloud/api/nowhere", `<svg/>`)
		Expect(d.Answers["GET cloud_server/nowhere 200"].Shape).To(Equal(map[string][]string{"": {"not JSON"}}))
		_, d = recorded(ctx, http.MethodDelete, "/iaas-cloud/api/volumes/"+serverID, ``)
		Expect(d.Answers["DELETE cloud_server/volumes/{id} 200"].Shape).To(Equal(map[string][]string{"": {"empty"}}))
	})
	It("should ask what the client does not, with the same credentials and endpoint", func(ctx SpecContext) {
		recorder, _ := recorded(ctx, http.MethodGet, "/hcm/iaas-cloud/api/servers", `[]`)
		status, body, err := recorder.Ask(ctx, "cloud_server", "/servers?name=x")
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusOK))
		Expect(string(body)).To(Equal("[]"))
		_, _, err = recorder.Ask(ctx, "kubernetes_engine", "/_")
		Expect(err).To(MatchError(ContainSubstring("was not asked yet")))
	})
})

var _ = Describe("A document", func() {
	It("should be what it was after it was written and read", func(ctx SpecContext) {
		_, d := recorded(ctx, http.MethodGet, "/iaas-cloud/api/servers", `[{"status":"ACTIVE"}]`)
		d.Findings = map[string]answers.Finding{"plans": {Question: "which plans exist", Answer: []string{"on_demand"}}}
		path := filepath.Join(GinkgoT().TempDir(), "folder", "answers.json")
		Expect(d.Write(path, []string{"", "short", "not-in-there"})).To(Succeed())
		read, err := answers.Read(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Answers).To(Equal(d.Answers))
		Expect(answers.Compare(d, read)).To(BeEmpty())
	})
	It("should not be written with a secret in it", func() {
		d := answer(map[string][]string{"": {"object"}}, map[string][]string{"message": {"your token is hush-hush"}})
		path := filepath.Join(GinkgoT().TempDir(), "answers.json")
		Expect(d.Write(path, []string{"another", "hush-hush"})).To(MatchError(And(ContainSubstring("secret number 2"), Not(ContainSubstring("hush")))))
		Expect(path).NotTo(BeAnExistingFile())
	})
	It("should not be read in another form", func() {
		path := filepath.Join(GinkgoT().TempDir(), "answers.json")
		Expect(os.WriteFile(path, []byte(`{"version":99}`), 0o600)).To(Succeed())
		_, err := answers.Read(path)
		Expect(err).To(MatchError(ContainSubstring("have the form 99, expected 1")))
	})
})

var _ = Describe("The comparison", func() {
	full := map[string][]string{"": {"array"}, "[]": {"object"}, "[].id": {"string"}, "[].flavor": {"object"}, "[].flavor.ram": {"number"}}

	DescribeTable("should report differences", func(actual, sandbox map[string][]string, expected ...string) {
		reported := []string{}
		for _, d := range answers.Compare(answer(actual), answer(sandbox)) {
			reported = append(reported, d.String())
		}
		Expect(reported).To(Equal(append([]string{}, expected...)))
	},
		Entry("nothing", full, full),
		Entry("a field that the sandbox lacks", full, without(full, "[].id"), "GET cloud_server/servers 200 [].id: only the cloud has it (string)"),
		Entry("a field that the sandbox invents", without(full, "[].flavor.ram"), full,
			"GET cloud_server/servers 200 [].flavor.ram: only the sandbox has it (number)"),
		Entry("another type", full, with(full, "[].id", "number"), "GET cloud_server/servers 200 [].id: the cloud has string, the sandbox number"),
		Entry("but not what only one of them had null", full, with(full, "[].id", "null", "string")),
		Entry("but not what is below a list that was empty on one side", full, map[string][]string{"": {"array"}}),
	)
	It("should report a word that the sandbox never has, and none of the catalog", func() {
		actual := answer(full, map[string][]string{"[].status": {"ACTIVE", "SHELVED"}, "[].volume_type": {"NEW-SSD"}})
		sandbox := answer(full, map[string][]string{"[].status": {"ACTIVE", "BUILD"}})
		Expect(answers.Compare(actual, sandbox)).To(ConsistOf(
			answers.Difference{Where: "GET cloud_server/servers 200 [].status", What: "the sandbox never has SHELVED"}))
	})
	It("should report another status", func() {
		sandbox := answer(full)
		sandbox.Answers = map[string]*answers.Answer{"GET cloud_server/servers 500": sandbox.Answers["GET cloud_server/servers 200"]}
		Expect(answers.Compare(answer(full), sandbox)).To(HaveLen(2))
	})
	It("should compare what was found out where it is a matter of behaviour", func() {
		finding := func(answer any, behaviour bool) *answers.Document {
			return &answers.Document{Findings: map[string]answers.Finding{"filter": {Question: "how are names compared", Answer: answer, Behaviour: behaviour}}}
		}
		Expect(answers.Compare(finding("exact", true), finding("exact", true))).To(BeEmpty())
		Expect(answers.Compare(finding("exact", false), finding("prefix", false))).To(BeEmpty())
		Expect(answers.Compare(finding([]any{"a"}, true), finding([]string{"a"}, true))).To(BeEmpty(), "one of them was read from a file")
		Expect(answers.Compare(finding("exact", true), finding("prefix", true))).To(ConsistOf(
			answers.Difference{Where: "filter", What: "how are names compared: the cloud has exact, the sandbox prefix"}))
		Expect(answers.Compare(finding("exact", true), &answers.Document{})).To(HaveLen(1))
	})
})

func without(shape map[string][]string, path string) map[string][]string {
	return with(shape, path)
}

func with(shape map[string][]string, path string, kinds ...string) map[string][]string {
	changed := map[string][]string{}
	for p, k := range shape {
		changed[p] = k
	}
	changed[path] = kinds
	if len(kinds) == 0 {
		delete(changed, path)
	}
	return changed
}
