// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// decode reads the body strictly: what the request type does not know is rejected. An empty body is an empty request.
func decode[T any](q *call) (T, *reply) {
	var request T
	if len(bytes.TrimSpace(q.body)) == 0 {
		return request, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(q.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return request, bad("Dữ liệu không hợp lệ: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return request, bad("Dữ liệu không hợp lệ: trailing data")
	}
	return request, nil
}

// actions are what POST …/action knows by name: the fields that each takes besides its name.
type actions map[string][]string

// rejection reports that there is no such action, or that the body has a field that the action has no use for.
func (a actions) rejection(q *call, key, action string) *reply {
	fields, known := a[action]
	if !known {
		return bad("There is no such %s: %q", key, action)
	}
	var object map[string]json.RawMessage
	if len(bytes.TrimSpace(q.body)) > 0 && json.Unmarshal(q.body, &object) != nil {
		return bad("Dữ liệu không hợp lệ")
	}
	for name := range object {
		if name != key && !slices.Contains(fields, name) {
			return bad("unknown field %q of %s %s", name, key, action)
		}
	}
	return nil
}
