// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Effect is what a fault does to a request.
type Effect string

// The effects on the transport, which any request can suffer.
const (
	// EffectDelay answers Delay later.
	EffectDelay Effect = "delay"
	// EffectStatus answers with Status (500) and Message, without doing anything unless Commit is set.
	EffectStatus Effect = "status"
	// EffectUnauthorized answers 401.
	EffectUnauthorized Effect = "unauthorized"
	// EffectThrottle answers 429 with RetryAfter.
	EffectThrottle Effect = "throttle"
	// EffectReset closes the connection before anything is done.
	EffectReset Effect = "reset"
	// EffectLostResponse does what was asked and closes the connection instead of answering.
	EffectLostResponse Effect = "lost_response"
	// EffectTruncated answers with the first half of the JSON.
	EffectTruncated Effect = "truncated"
	// EffectHTML answers with the page of a gateway and Status (200); see Commit.
	EffectHTML Effect = "html"
	// EffectEmpty answers Status (200) with no body; see Commit.
	EffectEmpty Effect = "empty"
	// EffectBody answers Status (200) with Body; see Commit.
	EffectBody Effect = "body"
	// EffectNumericMetadata puts a number among the strings of every metadata in the answer.
	EffectNumericMetadata Effect = "numeric_metadata"
	// EffectStale answers lists and gets of servers as they were Delay ago.
	EffectStale Effect = "stale"
)

// The effects on what an accepted POST /servers (the last three also GET /tasks) leads to.
const (
	// EffectErrorServer leaves a server in ERROR and a task without success.
	EffectErrorServer Effect = "error_server"
	// EffectTaskFailed leaves no server and a task without success; with Orphan the root disk stays.
	EffectTaskFailed Effect = "task_failed"
	// EffectLateError makes the task succeed and the server ERROR Delay later.
	EffectLateError Effect = "late_error"
	// EffectStuck never ends the task.
	EffectStuck Effect = "stuck"
	// EffectSlowTask makes the task take Delay.
	EffectSlowTask Effect = "slow_task"
	// EffectEmptyTask answers with an empty array of task ids although the server is made.
	EffectEmptyTask Effect = "empty_task"
	// EffectNoJoin lets the guest never join.
	EffectNoJoin Effect = "no_join"
	// EffectNoCapacity, EffectNoAddress, EffectQuota and EffectBalance reject the create request; with Async its task fails.
	EffectNoCapacity Effect = "no_capacity"
	EffectNoAddress  Effect = "no_address"
	EffectQuota      Effect = "quota"
	EffectBalance    Effect = "balance"
	// EffectTask404 makes the task unknown.
	EffectTask404 Effect = "task_404"
	// EffectTaskString makes the result of a task that is ready a string.
	EffectTaskString Effect = "task_string"
	// EffectTaskNull makes the result of a task that is ready null.
	EffectTaskNull Effect = "task_null"
)

var allEffects = []Effect{
	EffectDelay, EffectStatus, EffectUnauthorized, EffectThrottle, EffectReset, EffectLostResponse, EffectTruncated, EffectHTML, EffectEmpty,
	EffectBody, EffectNumericMetadata, EffectStale, EffectErrorServer, EffectTaskFailed, EffectLateError, EffectStuck,
	EffectSlowTask, EffectEmptyTask, EffectNoJoin, EffectNoCapacity, EffectNoAddress, EffectQuota, EffectBalance, EffectTask404,
	EffectTaskString, EffectTaskNull,
}

// Fault is one rule of misbehaviour. Rules are looked at in order and all that fire apply; of those that answer
// instead of the cloud the first one does.
type Fault struct {
	// Method is the HTTP method; empty matches any.
	Method string `json:"method,omitempty"`
	// Path is a glob over the path, whole ("/iaas-cloud/api/servers/*") or below the service's URL ("/servers/*"). "*"
	// stays within a segment, "**" does not; empty and "*" alone match everything.
	Path string `json:"path,omitempty"`
	// Contains must occur in the request's body; empty matches any.
	Contains string `json:"contains,omitempty"`
	// Effect is what happens.
	Effect Effect `json:"effect"`
	// Probability is between 0 and 1; 0 means always.
	Probability float64 `json:"probability,omitempty"`
	// Count is how often the rule fires; 0 means without end.
	Count int `json:"count,omitempty"`
	// Skip is how many matching requests are left alone first.
	Skip int `json:"skip,omitempty"`
	// Status is the HTTP status of effects that answer, and of rejections.
	Status int `json:"status,omitempty"`
	// Delay and RetryAfter are durations such as "2s", or numbers of seconds, in JSON.
	Delay      time.Duration `json:"delay,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Code and Message are the API's error code and text; Body replaces the whole answer (EffectBody, EffectStatus).
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Body    string `json:"body,omitempty"`
	// Commit does what was asked before answering otherwise.
	Commit bool `json:"commit,omitempty"`
	// Async turns a rejection into a failed task with a server in ERROR.
	Async bool `json:"async,omitempty"`
	// Orphan leaves the root disk of a failed build behind.
	Orphan bool `json:"orphan,omitempty"`
}

// UnmarshalJSON reads durations as strings or seconds and rejects fields that do not exist.
func (f *Fault) UnmarshalJSON(raw []byte) error {
	type plain Fault
	wire := struct {
		*plain
		Delay      duration `json:"delay"`
		RetryAfter duration `json:"retry_after"`
	}{plain: (*plain)(f)}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wire); err != nil {
		return err
	}
	f.Delay, f.RetryAfter = time.Duration(wire.Delay), time.Duration(wire.RetryAfter)
	return f.Validate()
}

type duration time.Duration

// UnmarshalJSON reads "2s" or a number of seconds.
func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		parsed, err := time.ParseDuration(text)
		*d = duration(parsed)
		return err
	}
	var number float64
	if err := json.Unmarshal(raw, &number); err != nil {
		return err
	}
	*d = duration(number * float64(time.Second))
	return nil
}

// Validate returns what is wrong with the rule.
func (f *Fault) Validate() error {
	switch {
	case !slices.Contains(allEffects, f.Effect):
		return fmt.Errorf("effect %q is unknown, want one of %v", f.Effect, allEffects)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("probability %v is not between 0 and 1", f.Probability)
	case f.Count < 0 || f.Skip < 0:
		return fmt.Errorf("count and skip must not be negative")
	}
	return nil
}

func (f *Fault) message(fallback string) string { return orDefault(f.Message, fallback) }

// rejection is the message of a fault of capacity.
func (f *Fault) rejection(vietnamese bool) (int, string) {
	status, english, local := http.StatusConflict, noRoom(false), noRoom(true)
	switch f.Effect {
	case EffectNoAddress:
		english, local = "No more IP addresses available on network.", "Không đủ địa chỉ IP"
	case EffectQuota:
		status = http.StatusForbidden
		english, local = "Quota exceeded for cores, instances: Requested 2, 1, but already used 10, 5 of 10, 5 cores, instances",
			"Vượt quá hạn mức cho phép của tài khoản: cores, instances"
	case EffectBalance:
		status = http.StatusPaymentRequired
		english, local = "Insufficient balance: please top up your account", "Số dư tài khoản không đủ"
	}
	if f.Status != 0 {
		status = f.Status
	}
	if vietnamese {
		english = local
	}
	return status, f.message(english)
}

// armedFault is a rule with what it has done so far.
type armedFault struct {
	Fault
	pattern     *regexp.Regexp
	seed        int64
	index       int
	seen, fired int
}

// AddFaults adds rules whose chances are decided by the seed: the n-th matching request of a rule meets the same fate
// in every run. A rule that Validate rejects panics, since it is the test that is wrong.
func (c *Cloud) AddFaults(seed int64, faults ...Fault) {
	for _, f := range faults {
		if err := f.Validate(); err != nil {
			panic(err)
		}
	}
	c.with(func() {
		for _, f := range faults {
			c.faults = append(c.faults, &armedFault{Fault: f, pattern: glob(f.Path), seed: seed, index: len(c.faults)})
		}
	})
}

// ClearFaults removes all rules. What they already did to servers and tasks stays.
func (c *Cloud) ClearFaults() {
	c.with(func() { c.faults = nil })
}

// FaultsFired counts how often each rule has fired, in the order in which the rules were added.
func (c *Cloud) FaultsFired() []int {
	fired := []int{}
	c.with(func() {
		for _, f := range c.faults {
			fired = append(fired, f.fired)
		}
	})
	return fired
}

func glob(pattern string) *regexp.Regexp {
	if pattern == "" || pattern == "*" {
		pattern = "**"
	}
	var b strings.Builder
	b.WriteString("^")
	for i, part := range strings.Split(pattern, "**") {
		if i > 0 {
			b.WriteString(".*")
		}
		for j, literal := range strings.Split(part, "*") {
			if j > 0 {
				b.WriteString("[^/]*")
			}
			b.WriteString(regexp.QuoteMeta(literal))
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

// fire returns the rules that this request meets.
func (c *Cloud) fire(q *call, relative string) effects {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fx effects
	for _, f := range c.faults {
		switch {
		case f.Method != "" && !strings.EqualFold(f.Method, q.method):
		case !f.pattern.MatchString(q.path) && !f.pattern.MatchString(relative):
		case f.Contains != "" && !strings.Contains(string(q.body), f.Contains):
		case f.Count > 0 && f.fired >= f.Count:
		default:
			f.seen++
			if f.seen > f.Skip && (f.Probability == 0 || f.chance() < f.Probability) {
				f.fired++
				fault := f.Fault
				fx = append(fx, &fault)
			}
		}
	}
	return fx
}

// chance is the fate of the request just seen, in [0, 1).
func (f *armedFault) chance() float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%d/%d", f.seed, f.index, f.seen)
	sum := h.Sum64()
	sum ^= sum >> 33 // the low bits of FNV depend little on the last byte, so mix them into the high ones
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return float64(sum>>11) / (1 << 53)
}
