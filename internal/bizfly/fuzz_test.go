// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// FuzzResponses answers every call with any status, header and body: none may panic or hang, and each must end in a
// value or in a typed error that says what may have happened.
func FuzzResponses(f *testing.F) {
	type response struct {
		status        int
		header, value string
		body          string
	}
	var current atomic.Pointer[response]
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/token":
			_, _ = w.Write([]byte(`{"token":"fuzz-token","project_id":"p"}`))
		case "/api/auth/service":
			_, _ = w.Write([]byte(`{"services":[{"canonical_name":"cloud_server","region":"","service_url":"` + s.URL +
				`/a"},{"canonical_name":"kubernetes_engine","region":"","service_url":"` +
				s.URL + `/b"},{"canonical_name":"bizfly_account","region":"","service_url":"` + s.URL + `/c"}]}`))
		default:
			answer := current.Load()
			if textproto.TrimString(answer.header) != "" && !strings.ContainsAny(answer.header, "\r\n: ") {
				w.Header().Set(answer.header, answer.value)
			}
			w.WriteHeader(answer.status)
			_, _ = w.Write([]byte(answer.body))
		}
	}))
	f.Cleanup(s.Close)
	clock := &skipping{}
	wide := bizfly.Limit{QPS: 1000, Burst: 1000, Concurrency: 100}
	client, err := newClient(bizfly.Config{
		APIURL: s.URL, Region: "HN", AllowHTTP: true, AuthMethod: bizfly.AuthMethodPassword, Email: "a@example.com", Password: "fuzz-password",
		Limits: bizfly.Limits{Delete: wide, Read: wide, Create: wide}, Clock: clock, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		f.Fatal(err)
	}
	client.Confirm(bizfly.Scope{Host: strings.TrimPrefix(s.URL, "http://"), Region: "HaNoi", ProjectID: "p"})

	for _, seed := range []response{
		{200, "Content-Type", "application/json", `[{"id":"a","metadata":{"n":1}}]`},
		{200, "Content-Type", "text/html", `<html>`},
		{200, "Content-Length", "5", `[]`},
		{200, "Content-Encoding", "gzip", "\x1f\x8b\x08"},
		{200, "", "", `{"task_id":["t"],"id":"` + serverID + `","uid":"zdckkshu1he44fsb","ready":true,"result":{"id":"x","success":false,"message":{"a":[1]}}}`},
		{200, "", "", `{"server_types":[{"name":"a"}],"volume_types":[],"os_images":[{"os":"a","versions":null}],"images":[],"controller_versions":[]}`},
		{200, "", "", `{"HN":{"zones":[{}]},"VC":{}}`}, {200, "", "", `null`}, {204, "", "", ``}, {206, "", "", `{`},
		{302, "Location", "https://manage.bizflycloud.vn/", ``}, {401, "", "", `{}`}, {402, "", "", `số dư`}, {404, "", "", `{"message":"no"}`},
		{413, "Retry-After", "1", ``},
		{429, "Retry-After", "99999999999", ``}, {500, "", "", `{"error":{"error":{"error":{}}}}`}, {503, "Retry-After", "-1", `{"overLimit":{}}`},
		{599, "", "", "\xff\xfe"},
	} {
		f.Add(seed.status, seed.header, seed.value, seed.body)
	}

	calls := everyCall()
	f.Fuzz(func(t *testing.T, status int, header, value, body string) {
		// Other statuses cannot be sent by a server of net/http, and 1xx are not final.
		current.Store(&response{status: 200 + (status%400+400)%400, header: header, value: value, body: body})
		// Whatever pause or back-off the answer before this one caused is over.
		clock.Step(10 * time.Minute)
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := call(ctx, client)
			if ctx.Err() != nil {
				t.Errorf("%s hung", name)
			}
			cancel()
			if err == nil {
				continue
			}
			var apiError *bizfly.APIError
			if !errors.As(err, &apiError) {
				t.Fatalf("%s: %T is not typed: %v", name, err, err)
			}
			if apiError.Operation != name || apiError.Class == "" || apiError.Ambiguous && apiError.NotSent {
				t.Errorf("%s: %#v", name, apiError)
			}
			if apiError.Ambiguous && (strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Get")) {
				t.Errorf("%s cannot be ambiguous: %v", name, err)
			}
			if apiError.Class == bizfly.ClassNotFound && apiError.Status != http.StatusNotFound {
				t.Errorf("%s: not found from status %d", name, apiError.Status)
			}
			if strings.Contains(err.Error(), "fuzz-token") || strings.Contains(err.Error(), "fuzz-password") {
				t.Errorf("%s: secret in %v", name, err)
			}
		}
	})
}

// FuzzClassify classifies any message of a failed task: it is one of the classes, always the same, and its text is bounded.
func FuzzClassify(f *testing.F) {
	for _, seed := range []string{
		"No valid host was found. There are not enough hosts available.", "Quota exceeded for cores: Requested 4, but already used 8 of 8 cores", "số dư không đủ",
		"Volume type PREMIUM-SSD1 not found", "VMware (500)", "\x00\xff", "flavor is invalid", "quá hạn thanh toán", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		err := bizfly.TaskFailure("t", "create_server", message)
		class := bizfly.ClassOf(err)
		if !slices.Contains(bizfly.MessageClasses(), class) {
			t.Errorf("%q has the class %q", message, class)
		}
		if again := bizfly.TaskFailure("t", "create_server", message); bizfly.ClassOf(again) != class || bizfly.ScopeOf(again) != bizfly.ScopeOf(err) {
			t.Errorf("%q has two classes", message)
		}
		if len(err.Error()) > 2000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
