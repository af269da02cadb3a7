// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/bizflycloud/gobizfly"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

// bodyRule checks the body of a 2xx before gobizfly sees it, and returns the body that gobizfly can read. gobizfly
// takes null, {} and trailing garbage for an empty list, dereferences null elements, and loses a whole list to one
// number in a metadata map.
type bodyRule struct {
	// named is the field (several joined by dots) by which each element of a list has a text as its name, and key the
	// field of an object that holds the list. Both are empty where the body is one object.
	named, key string
	// optional bodies may be empty, and secret ones keep the secrets in metadata.
	optional, secret bool
}

var (
	objectBody = bodyRule{}
	// secretObjectBody is objectBody for the calls that are made for a secret.
	secretObjectBody = bodyRule{secret: true}
	// acknowledgement is an object or nothing at all: the API accepts deletes with 204 and empty bodies.
	acknowledgement = bodyRule{optional: true}
)

func listBody(named string) bodyRule { return bodyRule{named: named} }

func wrappedBody(key, named string) bodyRule { return bodyRule{key: key, named: named} }

func (r bodyRule) apply(body []byte) ([]byte, error) {
	if trimmed := bytes.TrimSpace(body); r.optional && (len(trimmed) == 0 || string(trimmed) == "null") {
		return []byte("{}"), nil
	}
	document, err := decode(body)
	if err != nil {
		return nil, err
	}
	normalise(document, r.secret)
	if err := r.check(document); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

// check returns what is wrong with the document.
func (r bodyRule) check(document any) error {
	if r.named == "" || r.key != "" {
		object, ok := document.(map[string]any)
		if !ok {
			return fmt.Errorf("%T where an object belongs", document)
		}
		document = object[r.key]
	}
	if r.named == "" {
		return nil
	}
	elements, ok := document.([]any)
	if !ok {
		return fmt.Errorf("%T where the array %s belongs", document, r.key)
	}
	if len(elements) > maxElements {
		return fmt.Errorf("the array has %d elements, more than %d", len(elements), maxElements)
	}
	for i, element := range elements {
		if _, ok := element.(map[string]any); !ok {
			return fmt.Errorf("element %d is %T, not an object", i, element)
		}
		for _, field := range strings.Split(r.named, ".") {
			object, _ := element.(map[string]any)
			element = object[field]
		}
		if name, _ := element.(string); name == "" {
			return fmt.Errorf("element %d has no %s", i, r.named)
		}
	}
	return nil
}

const (
	// maxElements bounds a list: some times the servers and disks that a project can have.
	maxElements = 50_000
	// maxObjects and maxValues bound what a document is decoded into, which takes up to fifty times the memory of its
	// text. They are counted by the braces and commas of the text, of which a string may have some more.
	maxObjects, maxValues = 400_000, 2_000_000
)

func decode(body []byte) (document any, err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the body is empty")
	}
	if bytes.Count(body, []byte("{")) > maxObjects || bytes.Count(body, []byte(",")) > maxValues {
		return nil, fmt.Errorf("the body has more than %d objects or %d values", maxObjects, maxValues)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("the body is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body goes on after its JSON")
	}
	return document, nil
}

// normalise turns the values of metadata into the strings that gobizfly expects, and takes the secrets out of them: the
// API echoes the join token of every node to every reader of the list of servers, and what we do not hold cannot leak.
func normalise(value any, keepSecrets bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			normalise(element, keepSecrets)
		}
	case map[string]any:
		for key, element := range value {
			if key == "metadata" || key == "volume_image_metadata" {
				value[key] = stringMap(element, keepSecrets)
				continue
			}
			normalise(element, keepSecrets)
		}
	}
}

// stringMap makes a map of strings of a metadata object.
func stringMap(value any, keepSecrets bool) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for key, element := range object {
		text := scalar(element)
		if !keepSecrets && text != "" && secretMetadata.MatchString(key) {
			text = redact.Removed
		}
		object[key] = text
	}
	return object
}

// scalar is the text of any JSON value.
func scalar(value any) string {
	if text, ok := value.(string); ok || value == nil {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// errorBody is what a rejection says.
type errorBody struct {
	json          bool
	code, message string
}

// parseErrorBody reads BizFly's {"code","message"}, OpenStack's {"badRequest":{"code","message"}}, a message that is
// the complete JSON, and plain text, some of which ("404 page not found") begins with a number. A page of HTML says
// nothing that anyone should read.
func parseErrorBody(body, contentType string) errorBody {
	trimmed := strings.TrimSpace(body)
	document, _ := decode([]byte(trimmed)) // what is not JSON is text
	switch document := document.(type) {
	case map[string]any:
		code, message := errorFields(document, 0)
		return errorBody{json: true, code: code, message: message}
	case string:
		return errorBody{json: true, message: document}
	}
	if strings.HasPrefix(trimmed, "<") || strings.Contains(strings.ToLower(contentType), "html") {
		return errorBody{message: "a page that is not JSON, probably of a gateway"}
	}
	return errorBody{message: trimmed}
}

// errorFields looks for code and message, at most two objects deep. Nova says in fault why a server is in ERROR, and
// the auto scaling service in data why a task has failed.
func errorFields(object map[string]any, depth int) (code, message string) {
	code = scalar(object["code"])
	for _, key := range []string{"message", "error", "fault", "detail", "data", "error_message", "msg", "errors",
		"title"} {
		switch value := object[key].(type) {
		case nil:
		case string:
			message = value
		case map[string]any:
			var nested string
			if depth < 2 {
				nested, message = errorFields(value, depth+1)
			}
			code, message = cmp.Or(code, nested), cmp.Or(message, scalar(value))
		default:
			message = scalar(value)
		}
		if message != "" {
			return code, message
		}
	}
	// OpenStack names the only field after the error: {"overLimit": {...}}, {"itemNotFound": {...}}.
	if len(object) == 1 && depth < 2 {
		for name, value := range object {
			if nested, ok := value.(map[string]any); ok {
				code, message = errorFields(nested, depth+1)
				return code, strings.TrimSpace(name + ": " + message)
			}
		}
	}
	return code, message
}

// secretMetadata are the metadata keys whose values are secrets.
var secretMetadata = regexp.MustCompile(`(?i)(token|secret|password)`)

// localAddress is this side of a connection in an error of package net. Its port differs with each attempt, and so
// would conditions and events.
var localAddress = regexp.MustCompile(`[^ ]+:\d+->`)

// cause wraps an error so that its text is clean and bounded while its identity stays.
func (w *wire) cause(err error) error {
	if err == nil {
		return nil
	}
	return &cleanError{text: shorten(w.redactor.Text(localAddress.ReplaceAllString(err.Error(), "")), maxMessage),
		cause: err}
}

// requestSecrets are what a create request carries that no error may repeat: the user data, and metadata such as the
// BKE join token.
func requestSecrets(request *gobizfly.ServerCreateRequest) []string {
	secrets := []string{request.UserData}
	for key, value := range request.Metadata {
		if secretMetadata.MatchString(key) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}
