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

package tuning

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
)

// key is one row of the table that is both the parser and the documentation.
type key struct {
	name string
	// option is the environment variable whose value is the default; empty for none.
	option string
	unit   string
	// bounds are what may be used, in words.
	bounds string
	doc    string
	// value returns a pointer to the key's part of the values.
	value func(*Values) any
	// text is the default for people where the value itself is not.
	text string
	// parse sets the value, or a part of it, and names what it ignores.
	parse func(*Values, string) []Problem
}

var keys = []key{
	duration("catalogInterval", "CATALOG_INTERVAL", 10*time.Second, 24*time.Hour,
		"How often flavors, zones, volume types and Kubernetes versions are read. A change reads them at once.",
		func(v *Values) *time.Duration { return &v.CatalogInterval }),
	duration("garbageCollectionInterval", "GARBAGE_COLLECTION_INTERVAL", time.Second, time.Hour,
		"How often servers without a NodeClaim are looked for. A change looks at once.",
		func(v *Values) *time.Duration { return &v.GarbageCollectionInterval }),
	duration("serverPollInterval", "", 500*time.Millisecond, 30*time.Second,
		"The time between two looks for the servers that were ordered; one look serves all launches.",
		func(v *Values) *time.Duration { return &v.ServerPollInterval }),
	duration("serverListMaxAge", "", 100*time.Millisecond, time.Minute,
		"How old the list of servers may be that core, garbage collection and drift share. What decides that a server is gone is always read anew.",
		func(v *Values) *time.Duration { return &v.ServerListMaxAge }),
	duration("lookupCacheTTL", "", time.Second, time.Hour,
		"For how long lists of images, VPC networks, firewalls and SSH keys are believed. What such a list lacks is looked for in a new one in any case.",
		func(v *Values) *time.Duration { return &v.LookupCacheTTL }),
	duration("unavailableOfferingTTL", "UNAVAILABLE_OFFERING_TTL", time.Second, 24*time.Hour,
		"For how long an offering without room is not tried again. What is marked already keeps its time.",
		func(v *Values) *time.Duration { return &v.UnavailableOfferingTTL }),
	duration("accountPause", "", time.Second, time.Hour,
		"For how long all launches rest after the cloud refused one for the whole account: quota or balance.",
		func(v *Values) *time.Duration { return &v.AccountPause }),
	duration("serverIDWait", "SERVER_ID_WAIT", time.Second, 30*time.Second,
		"How long one launch waits for the id of its server. Core schedules nothing meanwhile.",
		func(v *Values) *time.Duration { return &v.ServerIDWait }),
	duration("visibilityWindow", "VISIBILITY_WINDOW", 5*time.Second, time.Hour,
		"How long an order whose answer was lost is looked for before its NodeClaim is given up.",
		func(v *Values) *time.Duration { return &v.VisibilityWindow }),
	grace(),
	{
		name: "vmMemoryOverheadPercent", option: "VM_MEMORY_OVERHEAD_PERCENT", unit: "percent", bounds: "0 to less than 50",
		doc:   "The part of a flavor's memory that its node does not see, until nodes have reported it. More than 7.5 is left out whatever they report. It counts for nodes that are launched from then on.",
		value: func(v *Values) any { return &v.MemoryOverheadPercent },
		parse: func(v *Values, raw string) []Problem {
			percent, err := strconv.ParseFloat(strings.TrimSpace(raw), 64)
			// Written so that NaN does not pass.
			if inside := percent >= 0 && percent < 50; err != nil || !inside {
				return []Problem{problem("vmMemoryOverheadPercent", raw, "use a number from 0 to less than 50, for example 7.5")}
			}
			v.MemoryOverheadPercent = percent
			return nil
		},
	},
	{
		name: "prices", unit: "YAML, VND per hour", bounds: "a whole price table; every rate above 0",
		doc:   "The price table, in the form of [table.yaml](../internal/providers/pricing/table.yaml); [pricing.md](pricing.md) says what each number means. It replaces the built-in table as a whole.",
		value: func(v *Values) any { return &v.Prices }, text: "the built-in table",
		parse: func(v *Values, raw string) []Problem {
			table, err := pricing.ParseTable([]byte(raw))
			if err != nil {
				return []Problem{problem("prices", raw, err.Error())}
			}
			v.Prices = table
			return nil
		},
	},
	{
		name: "flavorOverrides", unit: "YAML, by flavor",
		bounds: fmt.Sprintf("`hidden`: true or false; `category`, `generation`, `cpuVendor`: a label value; `gpuName`: at most 63 characters; `gpuCount`: 0 to %d", maxGPUs),
		doc:    "What the cloud does not say of a flavor, or says wrongly. A hidden flavor is not launched any more; nodes that run on it stay.",
		value:  func(v *Values) any { return &v.FlavorOverrides }, text: "none",
		parse: parseOverrides,
	},
	{
		name: "errorPatterns", unit: "YAML, a list",
		bounds: fmt.Sprintf("at most %d; `pattern`: a regular expression (RE2); `class`: see below", maxPatterns),
		doc:    "What messages of the cloud mean. They are tried in this order before the built-in patterns, without regard to case and to Vietnamese diacritics, where the HTTP status alone does not decide.",
		value:  func(v *Values) any { return &v.ErrorPatterns }, text: "none",
		parse: parsePatterns,
	},
}

// duration is a key whose value is one, such as 90s or 10m.
func duration(name, option string, least, most time.Duration, doc string, field func(*Values) *time.Duration) key {
	return key{
		name: name, option: option, unit: "duration", bounds: fmt.Sprintf("%s to %s", short(least), short(most)), doc: doc,
		value: func(v *Values) any { return field(v) },
		parse: func(v *Values, raw string) []Problem {
			value, err := time.ParseDuration(strings.TrimSpace(raw))
			if err != nil || value < least || value > most {
				return []Problem{problem(name, raw, fmt.Sprintf("use a duration from %s to %s, for example %s", short(least), short(most), short(*field(v))))}
			}
			*field(v) = value
			return nil
		},
	}
}

// grace is the duration that has a second bound: the server of a launch under way must not be collected.
func grace() key {
	k := duration("garbageCollectionGrace", "GARBAGE_COLLECTION_GRACE", 10*time.Second, 24*time.Hour,
		"The age below which a server without a NodeClaim is left alone.",
		func(v *Values) *time.Duration { return &v.GarbageCollectionGrace })
	k.bounds += ", and longer than LAUNCH_TIMEOUT"
	parse := k.parse
	k.parse = func(v *Values, raw string) []Problem {
		before := v.GarbageCollectionGrace
		if problems := parse(v, raw); problems != nil {
			return problems
		}
		if v.GarbageCollectionGrace <= v.LaunchTimeout {
			v.GarbageCollectionGrace = before
			return []Problem{problem(k.name, raw, fmt.Sprintf(
				"use more than LAUNCH_TIMEOUT, which is %s, or servers that are being launched would be deleted", short(v.LaunchTimeout)))}
		}
		return nil
	}
	return k
}

// short writes 10m instead of 10m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
