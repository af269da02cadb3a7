// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

// RuleNames are the rows of the classification table in their order.
func RuleNames() []string { return lo.Map(rules, func(r rule, _ int) string { return r.name }) }

// MessageClasses are the classes that the words of a message can decide; "not found" is not among them.
func MessageClasses() []Class {
	return append(lo.UniqMap(messageRules, func(r rule, _ int) Class { return r.class }), ClassUnknown)
}

// Classify returns the row that decides and its class.
func Classify(kind string, status int, json bool, message string) (string, Class) {
	f := failure{kind: kindOf(kind), status: status, json: json, message: message}
	for i := range rules {
		if rules[i].matches(f, withoutMarks(message)) {
			return rules[i].name, rules[i].class
		}
	}
	return "", ClassUnknown
}

// ScopeOfFailure returns how far a JSON answer reaches.
func ScopeOfFailure(kind string, status int, message string) ErrorScope {
	_, scope := classify(failure{kind: kindOf(kind), status: status, json: true, message: message})
	return scope
}

// TaskFailure is the error of a task that failed.
func TaskFailure(id, action, message string) error {
	return taskFailure(&redact.Redactor{}, id, action, message)
}

func kindOf(name string) kind { return kind(name) }

// IsOutage reports whether the cloud is not there, or answers nonsense, and the call had no effect.
func IsOutage(err error) bool { return ClassOf(err) == ClassOutage }

// RedactedOf cleans a text of what a create request carries.
func RedactedOf(request *gobizfly.ServerCreateRequest, text string) string {
	r := &redact.Redactor{}
	r.LearnRequest(requestSecrets(request)...)
	return r.Text(text)
}

// Backoff is the wait after so many failures.
func Backoff(failures int) time.Duration { return backoff(rand.Int64N, failures) }

// Panicking makes a call in which gobizfly panics, after the request was sent when sent is true.
func (c *Client) Panicking(ctx context.Context, create, sent bool) error {
	op := opListServers
	if create {
		op = opCreateServer
	}
	return c.do(ctx, op, func(client *gobizfly.Client) error {
		if sent {
			request, err := client.NewRequest(ctx, op.method, op.service, "/servers", nil)
			if err != nil {
				return err
			}
			response, err := client.Do(ctx, request)
			if err != nil {
				return err
			}
			_ = response.Body.Close()
		}
		panic("MARKED nil pointer")
	})
}

// Wander makes gobizfly send requests that no call of ours would make.
func (c *Client) Wander(ctx context.Context, service, path string, twice bool) error {
	return c.do(ctx, opListServers, func(client *gobizfly.Client) error {
		op := &operation{service: service, method: opListServers.method}
		_, err := fetch[any](ctx, client, op, path, nil)
		if err == nil && twice {
			_, err = fetch[any](ctx, client, op, path, nil)
		}
		return err
	})
}

// ApplyListBody checks the body of a list.
func ApplyListBody(body []byte) ([]byte, error) { return listBody("id").apply(body) }
