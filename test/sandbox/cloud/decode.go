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

// decode reads the body strictly: what the request type does not know is rejected, unless the route names it as unused.
// An empty body is an empty request.
func decode[T any](q *call) (T, *reply) {
	var request T
	body, rejection := q.withoutUnused()
	if rejection != nil {
		return request, rejection
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return request, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return request, bad("Dữ liệu không hợp lệ: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return request, bad("Dữ liệu không hợp lệ: trailing data")
	}
	return request, nil
}

// withoutUnused is the body without the fields that the route names as unused, of an object or of every object of an array.
func (q *call) withoutUnused() ([]byte, *reply) {
	if q.route == nil || len(q.route.unused) == 0 {
		return q.body, nil
	}
	trimmed := bytes.TrimSpace(q.body)
	isArray := len(trimmed) > 0 && trimmed[0] == '['
	var objects []map[string]json.RawMessage
	if isArray {
		if json.Unmarshal(trimmed, &objects) != nil {
			return q.body, nil // the strict decoder reports the error
		}
	} else {
		var object map[string]json.RawMessage
		if json.Unmarshal(trimmed, &object) != nil || object == nil {
			return q.body, nil
		}
		objects = append(objects, object)
	}
	for _, object := range objects {
		for field := range q.route.unused {
			delete(object, field)
		}
	}
	var kept any = objects
	if !isArray {
		kept = objects[0]
	}
	body, err := json.Marshal(kept)
	if err != nil {
		return nil, bad("Dữ liệu không hợp lệ: %v", err)
	}
	return body, nil
}

// actions are what POST …/action knows by name: the fields that each takes besides its name.
type actions map[string][]string

// rejection reports that there is no such action, or that the body has a field that the action has no use for.
func (a actions) rejection(q *call, key, action string) *reply {
	fields, known := a[action]
	if !known {
		return bad("There is no such %s: %q", key, action)
	}
	body, rejection := q.withoutUnused()
	if rejection != nil {
		return rejection
	}
	var object map[string]json.RawMessage
	if len(bytes.TrimSpace(body)) > 0 && json.Unmarshal(body, &object) != nil {
		return bad("Dữ liệu không hợp lệ")
	}
	for name := range object {
		if name != key && !slices.Contains(fields, name) {
			return bad("unknown field %q of %s %s", name, key, action)
		}
	}
	return nil
}
