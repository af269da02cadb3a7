// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// maxValues is how many different values of one field are kept.
const maxValues = 200

// dynamic are the objects whose keys are data: names of networks, of labels, or other input of users.
var dynamic = []string{"addresses", "metadata", "volume_image_metadata", "labels", "annotations", "total_disk"}

// spoken are the fields whose words are the cloud's own, and so neither secret nor personal.
var spoken = []string{
	"action", "attached_type", "availability_zone", "billing_plan", "billing_type", "category", "code", "container_format",
	"disk_format", "kubernetes_version", "message", "network_plan", "progress", "ready", "region_name", "short_name", "status",
	"success", "OS-EXT-STS:task_state", "OS-EXT-STS:vm_state", "type", "visibility", "volume_type", "zone_name", "canonical_name",
}

// named are the routes whose "name" and "billing_plans" are the catalog's, and not a user's.
var named = []string{"/flavors", "/volume-types", "/flavor-generations"}

// personal matches what a message of the cloud may contain that is personal.
var personal = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}`), "<id>"},
	{regexp.MustCompile(`[\w.+-]+@[\w-]+\.[\w.-]+`), "<email>"},
	{regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`), "<address>"},
	{regexp.MustCompile(`(?i)\b([0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b`), "<address>"},
	{regexp.MustCompile(`\b\S{40,}\b`), "<long>"},
}

// scrub removes personal data from a message.
func scrub(text string) string {
	for _, p := range personal {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300])
	}
	return text
}

// add adds one body to what is known of its kind.
func (a *Answer) add(route, contentType string, status int, body []byte) {
	a.Count++
	a.ContentTypes = insert(a.ContentTypes, contentType)
	// Of a rejection, and of a task, which may be one, each text is the cloud's own, and it is not known in which field it says why.
	speaks := func(name string) bool { return speaks(route, name) }
	if status >= http.StatusBadRequest || strings.Contains(route, "/tasks/") {
		speaks = func(string) bool { return true }
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		a.shape("", lo.Ternary(len(body) == 0, "empty", "not JSON"))
		if len(body) > 0 && status >= http.StatusBadRequest {
			a.value(speaks, "", "", string(body))
		}
		return
	}
	a.walk(speaks, "", "", value)
}

// walk adds a value with everything below it. name is the nearest key above it; speaks reports whether the values of a key are kept.
func (a *Answer) walk(speaks func(name string) bool, path, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		a.shape(path, "object")
		for key, below := range v {
			// The keys of what a user may write are data; only what is below them has a shape.
			step := lo.Ternary(slices.Contains(dynamic, name), "*", key)
			a.walk(speaks, join(path, step), step, below)
		}
	case []any:
		a.shape(path, "array")
		for _, below := range v {
			a.walk(speaks, path+"[]", name, below)
		}
	case string:
		a.shape(path, "string")
		a.value(speaks, path, name, v)
	case bool:
		a.shape(path, "boolean")
		a.value(speaks, path, name, fmt.Sprint(v))
	case float64:
		a.shape(path, "number")
		a.value(speaks, path, name, fmt.Sprint(v))
	case nil:
		a.shape(path, "null")
	}
}

func (a *Answer) shape(path, kind string) {
	if a.Shape == nil {
		a.Shape = map[string][]string{}
	}
	a.Shape[path] = insert(a.Shape[path], kind)
}

func (a *Answer) value(speaks func(name string) bool, path, name, value string) {
	if strings.Contains(path, "*") || !speaks(name) {
		return
	}
	if a.Values == nil {
		a.Values = map[string][]string{}
	}
	if len(a.Values[path]) < maxValues {
		a.Values[path] = insert(a.Values[path], scrub(value))
	}
}

func speaks(route, name string) bool {
	if slices.Contains(spoken, name) {
		return true
	}
	return (name == "name" || name == "billing_plans") && lo.SomeBy(named, func(end string) bool {
		return strings.HasSuffix(route, end)
	})
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// insert keeps a list sorted and without doubles.
func insert(list []string, value string) []string {
	at, found := slices.BinarySearch(list, value)
	if found {
		return list
	}
	return slices.Insert(list, at, value)
}
