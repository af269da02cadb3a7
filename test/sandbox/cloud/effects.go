// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// effects are the faults that one request meets.
type effects []*Fault

// String names them for the request log.
func (fx effects) String() string {
	var names []string
	for _, f := range fx {
		names = append(names, string(f.Effect))
	}
	return strings.Join(names, ",")
}

func (fx effects) first(wanted ...Effect) *Fault {
	i := slices.IndexFunc(fx, func(f *Fault) bool { return slices.Contains(wanted, f.Effect) })
	if i < 0 {
		return nil
	}
	return fx[i]
}

func (fx effects) has(wanted Effect) bool { return fx.first(wanted) != nil }

func (fx effects) delay() time.Duration {
	var total time.Duration
	for _, f := range fx {
		if f.Effect == EffectDelay {
			total += f.Delay
		}
	}
	return total
}

func (fx effects) staleness() time.Duration {
	if f := fx.first(EffectStale); f != nil {
		return f.Delay
	}
	return 0
}

// latency is how long the task of this request takes.
func (fx effects) latency(usual time.Duration) time.Duration {
	if f := fx.first(EffectSlowTask); f != nil {
		return f.Delay
	}
	return usual
}

// build is the fault that decides how a build (or a delete) ends.
func (fx effects) build() *Fault {
	return fx.first(EffectErrorServer, EffectTaskFailed, EffectLateError)
}

// capacity returns the fault that rejects a create request.
func (fx effects) capacity() *Fault {
	return fx.first(EffectNoCapacity, EffectNoAddress, EffectQuota, EffectBalance)
}

func (fx effects) taskEffect() Effect {
	if f := fx.first(EffectTask404, EffectTaskString, EffectTaskNull); f != nil {
		return f.Effect
	}
	return ""
}

// before answers without doing what was asked, where a fault wants that.
func (fx effects) before() (answer reply, aborted, done bool) {
	for _, f := range fx {
		switch {
		case f.Commit:
		case f.Effect == EffectReset:
			return reply{}, true, true
		default:
			if answer, instead := f.instead(); instead {
				return answer, false, true
			}
		}
	}
	return reply{}, false, false
}

// after distorts the answer to what was done.
func (fx effects) after(answer reply) (reply, bool) {
	for _, f := range fx {
		switch f.Effect {
		case EffectLostResponse:
			return answer, true
		case EffectReset:
			return answer, true // with Commit
		case EffectTruncated:
			answer = answer.marshal()
			answer.raw = answer.raw[:len(answer.raw)/2]
		case EffectNumericMetadata:
			answer = numericMetadata(answer.marshal())
		default:
			if replaced, instead := f.instead(); f.Commit && instead {
				return replaced, false
			}
		}
	}
	return answer, false
}

// instead is the answer that a fault gives in place of the cloud's.
func (f *Fault) instead() (reply, bool) {
	status := func(fallback int) int {
		if f.Status != 0 {
			return f.Status
		}
		return fallback
	}
	switch f.Effect {
	case EffectStatus:
		answer := reply{status: status(http.StatusInternalServerError)}
		answer.body = apiMessage{Code: f.Code, Message: f.message(http.StatusText(answer.status))}
		if f.Body != "" {
			answer.raw = []byte(f.Body)
		}
		return answer.retryAfter(f.RetryAfter), true
	case EffectUnauthorized:
		return problem(http.StatusUnauthorized, f.message("The request you have made requires authentication.")), true
	case EffectThrottle:
		return problem(status(http.StatusTooManyRequests), f.message("Too many requests")).retryAfter(f.RetryAfter), true
	case EffectHTML:
		return gateway(status(http.StatusOK)), true
	case EffectEmpty:
		return reply{status: status(http.StatusOK)}, true
	case EffectBody:
		return reply{status: status(http.StatusOK), raw: []byte(f.Body)}, true
	}
	return reply{}, false
}

func (a reply) retryAfter(d time.Duration) reply {
	if d > 0 {
		a.header = map[string]string{"Retry-After": strconv.Itoa(retryAfter(d))}
	}
	return a
}

// numericMetadata adds a number to every metadata object of a JSON answer.
func numericMetadata(answer reply) reply {
	var value any
	if json.Unmarshal(answer.raw, &value) != nil {
		return answer
	}
	addNumbers(value)
	if raw, err := json.Marshal(value); err == nil {
		answer.raw = raw
	}
	return answer
}

func addNumbers(value any) {
	switch typed := value.(type) {
	case []any:
		for _, element := range typed {
			addNumbers(element)
		}
	case map[string]any:
		if metadata, isObject := typed["metadata"].(map[string]any); isObject {
			metadata["sandbox_number"] = 42
		}
		for _, element := range typed {
			addNumbers(element)
		}
	}
}
