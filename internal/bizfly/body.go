/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package bizfly

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// bodyRule checks the body of a 2xx before gobizfly sees it, and returns the body that gobizfly can read. gobizfly
// takes null, {} and trailing garbage for an empty list, dereferences null elements, and loses a whole list to one
// number in a metadata map.
type bodyRule func(body []byte) ([]byte, error)

// listBody wants an array of objects, each of which has a text at the path (fields joined by dots) that names it.
func listBody(named string) bodyRule {
	return func(body []byte) ([]byte, error) {
		document, err := decode(body)
		if err != nil {
			return nil, err
		}
		if err := checkList(document, named); err != nil {
			return nil, err
		}
		return encode(document)
	}
}

// wrappedBody wants an object that holds such an array under a key.
func wrappedBody(key, named string) bodyRule {
	return func(body []byte) ([]byte, error) {
		document, err := decode(body)
		if err != nil {
			return nil, err
		}
		object, ok := document.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s where an object belongs", typeName(document))
		}
		if err := checkList(object[key], named); err != nil {
			return nil, fmt.Errorf("field %q: %w", key, err)
		}
		return encode(document)
	}
}

// objectBody wants an object.
func objectBody(body []byte) ([]byte, error) {
	return objectOf(body, decode)
}

// secretObjectBody is objectBody for the one call that is made for a secret.
func secretObjectBody(body []byte) ([]byte, error) {
	return objectOf(body, func(body []byte) (any, error) { return decodeWith(body, func(string) bool { return false }) })
}

func objectOf(body []byte, decode func([]byte) (any, error)) ([]byte, error) {
	document, err := decode(body)
	if err != nil {
		return nil, err
	}
	if _, ok := document.(map[string]any); !ok {
		return nil, fmt.Errorf("%s where an object belongs", typeName(document))
	}
	return encode(document)
}

// acknowledgement wants an object or nothing at all: the API accepts deletes with 204 and empty bodies.
func acknowledgement(body []byte) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "null" {
		return []byte("{}"), nil
	}
	return objectBody(body)
}

func checkList(value any, named string) error {
	elements, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s where an array belongs", typeName(value))
	}
	for i, element := range elements {
		if _, ok := element.(map[string]any); !ok {
			return fmt.Errorf("element %d is %s, not an object", i, typeName(element))
		}
		for _, field := range strings.Split(named, ".") {
			object, _ := element.(map[string]any)
			element = object[field]
		}
		if name, _ := element.(string); name == "" {
			return fmt.Errorf("element %d has no %s", i, named)
		}
	}
	return nil
}

func decode(body []byte) (any, error) {
	return decodeWith(body, secretMetadata.MatchString)
}

// decodeWith decodes a body and takes out of metadata the values of the keys that are secret.
func decodeWith(body []byte, secret func(key string) bool) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the body is empty")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("the body is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body goes on after its JSON")
	}
	normalise(document, secret)
	return document, nil
}

func encode(document any) ([]byte, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the body again: %w", err)
	}
	return body, nil
}

// normalise turns the values of metadata into the strings that gobizfly expects, and takes the secrets out of them:
// the API echoes the join token of every node to every reader of the list of servers, and what we do not hold cannot leak.
func normalise(value any, secret func(key string) bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			normalise(element, secret)
		}
	case map[string]any:
		for key, element := range value {
			if key == "metadata" || key == "volume_image_metadata" {
				value[key] = stringMap(element, secret)
				continue
			}
			normalise(element, secret)
		}
	}
}

// stringMap makes a map of strings of a metadata object. PHP-like backends send an empty one as [].
func stringMap(value any, secret func(key string) bool) any {
	if elements, ok := value.([]any); ok && len(elements) == 0 {
		return map[string]any{}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for key, element := range object {
		text, ok := element.(string)
		if !ok {
			text = scalar(element)
		}
		if secret(key) && text != "" {
			text = redacted
		}
		object[key] = text
	}
	return object
}

// scalar is the text of any JSON value.
func scalar(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case json.Number:
		return value.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	}
	return "a number"
}

// errorBody is what a rejection says.
type errorBody struct {
	json          bool
	code, message string
}

// parseErrorBody reads BizFly's {"code","message"}, OpenStack's {"badRequest":{"code","message"}} and plain text. A
// page of HTML says nothing that anyone should read.
func parseErrorBody(body, contentType string) errorBody {
	trimmed := strings.TrimSpace(body)
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(trimmed))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err == nil && object != nil {
		code, message := errorFields(object, 0)
		return errorBody{json: true, code: code, message: message}
	}
	if strings.HasPrefix(trimmed, "<") || strings.Contains(strings.ToLower(contentType), "html") {
		return errorBody{message: "a page that is not JSON, probably of a gateway"}
	}
	return errorBody{message: trimmed}
}

// errorFields looks for code and message, at most two objects deep.
func errorFields(object map[string]any, depth int) (code, message string) {
	if value, ok := object["code"]; ok {
		code = scalar(value)
	}
	for _, key := range []string{"message", "error", "detail", "error_message", "msg", "errors", "title"} {
		switch value := object[key].(type) {
		case nil:
		case string:
			message = value
		case map[string]any:
			var nested string
			if depth < 2 {
				nested, message = errorFields(value, depth+1)
			}
			if code == "" {
				code = nested
			}
			if message == "" {
				message = scalar(value)
			}
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
