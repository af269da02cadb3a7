// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/samber/lo"
)

// Class is what an error means to the caller, whatever the cloud called it.
type Class string

// The classes. An error has exactly one class; Unknown is a plain error that may be retried.
const (
	ClassUnknown    Class = "Unknown"
	ClassNotFound   Class = "NotFound"
	ClassCapacity   Class = "Capacity"
	ClassQuota      Class = "Quota"
	ClassBalance    Class = "Balance"
	ClassThrottled  Class = "Throttled"
	ClassAuth       Class = "Auth"
	ClassPermission Class = "Permission"
	ClassInvalid    Class = "Invalid"
	ClassConflict   Class = "Conflict"
	// ClassOutage is a cloud that answers with 5xx, garbage or not at all to a call that is known not to have had an
	// effect.
	ClassOutage Class = "Outage"
)

// ErrorScope is how far a failed launch reaches beyond the offering that was requested.
type ErrorScope string

// The scopes.
const (
	// ScopeOffering is the flavor in the zone with the billing plan, and whatever is not known to reach further.
	ScopeOffering ErrorScope = ""
	// ScopePlan is the flavor with the billing plan, in every zone.
	ScopePlan ErrorScope = "Plan"
	// ScopeZone is every flavor in the zone.
	ScopeZone ErrorScope = "Zone"
	// ScopeCategory is every flavor of the category in the zone.
	ScopeCategory ErrorScope = "Category"
	// ScopeNetwork is every server in a VPC network of the request.
	ScopeNetwork ErrorScope = "Network"
	// ScopeSize is every flavor with at least as many vCPUs and as much memory.
	ScopeSize ErrorScope = "Size"
	// ScopeNodeClass is every offering of the NodeClass: something that it decides is rejected, or a quota that names no
	// size is used up.
	ScopeNodeClass ErrorScope = "NodeClass"
	// ScopeAccount is everything: no balance, or rejected credentials.
	ScopeAccount ErrorScope = "Account"
)

// maxMessage bounds APIError.Message in runes: these texts end up in conditions, events and logs.
const maxMessage = 512

// APIError is the one error type of the adapter. Of a read or deletion that was repeated it is the last attempt's.
type APIError struct {
	// Operation is the method of the API interface, for example "CreateServer".
	Operation string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// Code is the API's own error code where it sent one, for example "UNKNOWN".
	Code string
	// Message is the API's own text (English or Vietnamese), shortened and with secrets removed.
	Message string
	// Class is what the error means.
	Class Class
	// Scope is how far the failure reaches.
	Scope ErrorScope
	// RetryAfter is how long the API asked to wait; 0 when it did not say.
	RetryAfter time.Duration
	// Ambiguous is true when the request may have had its effect although the answer is missing or unreadable.
	Ambiguous bool
	// NotSent is true when no byte of the request left this process.
	NotSent bool
	// Err is the cause where there is one, for example a context error or a transport error.
	Err error

	// unnamed is true for a failed task whose text is not recognised and names no field of the request.
	unnamed bool
	// unanswered is true when the exchange broke before a whole answer was read, which is what makes a read worth
	// repeating.
	unanswered bool
}

// Error says which call failed, how the cloud answered and what it said, on one line.
func (e *APIError) Error() string {
	var details []string
	if e.Status != 0 {
		details = append(details, fmt.Sprintf("status %d", e.Status))
	}
	if e.Code != "" {
		details = append(details, "code "+e.Code)
	}
	if e.NotSent {
		details = append(details, "not sent")
	}
	if e.Ambiguous {
		details = append(details, "outcome unknown")
	}
	// What was not sent waits for a time of this client's own, at random: conditions and events would change with each
	// attempt.
	if e.RetryAfter > 0 && !e.NotSent {
		details = append(details, "retry after "+e.RetryAfter.Round(time.Millisecond).String())
	}
	class := string(e.class())
	if len(details) > 0 {
		class += " (" + strings.Join(details, ", ") + ")"
	}
	cause := ""
	if e.Err != nil && !strings.Contains(e.Message, e.Err.Error()) {
		cause = e.Err.Error()
	}
	return strings.Join(lo.Compact([]string{"bizfly cloud", e.Operation, class, e.Message, cause}), ": ")
}

// Unwrap returns the cause, so that errors.Is finds a context error.
func (e *APIError) Unwrap() error { return e.Err }

func (e *APIError) class() Class { return cmp.Or(e.Class, ClassUnknown) }

// IsNotFound reports whether the cloud said, with a JSON 404 for exactly this id, that the object does not exist in the
// scope of the call.
func IsNotFound(err error) bool { return ClassOf(err) == ClassNotFound }

// IsAuth reports whether the credentials are rejected, or belong to another project than the configured one.
func IsAuth(err error) bool { return ClassOf(err) == ClassAuth }

// IsPermission reports whether the credentials are good but may not do this.
func IsPermission(err error) bool { return ClassOf(err) == ClassPermission }

// IsInvalid reports whether the request itself is wrong, so that repeating it cannot help.
func IsInvalid(err error) bool { return ClassOf(err) == ClassInvalid }

// IsConflict reports whether the object is in a state that forbids this now.
func IsConflict(err error) bool { return ClassOf(err) == ClassConflict }

// IsAmbiguous reports whether the request may have had its effect although no readable answer came back.
func IsAmbiguous(err error) bool { return of(err).Ambiguous }

// IsNotSent reports whether the request certainly never left this process.
func IsNotSent(err error) bool { return of(err).NotSent }

// IsRetryable reports whether the same request may simply be sent again: it never left this process for want of time or
// of a connection, the cloud's rate limit held it back, or a gateway said when to come back. No text makes an error
// retryable.
func IsRetryable(err error) bool {
	switch e := of(err); {
	case e.Ambiguous:
		return false
	case e.NotSent:
		return e.class() != ClassInvalid && e.class() != ClassAuth
	case e.Status == http.StatusServiceUnavailable:
		return e.RetryAfter > 0 && e.class() == ClassOutage
	default:
		return e.Status == http.StatusTooManyRequests || e.Status == http.StatusTooEarly
	}
}

// MayBeForm reports whether the cloud may have rejected a create request, or failed its task, only because of the form
// of a field: nothing else is named.
func MayBeForm(err error) bool {
	return of(err).unnamed || IsInvalid(err) && !IsNotSent(err) && ScopeOf(err) == ScopeOffering
}

// NamesVolumeType reports whether the text of a rejection names the type of a disk.
func NamesVolumeType(err error) bool { return aVolumeType.MatchString(withoutMarks(of(err).Message)) }

// NamesOffering reports whether the text of a rejection names the flavor, or what else no form of a volume type
// explains: a zone, a plan, a size.
func NamesOffering(err error) bool { return anOffering.MatchString(withoutMarks(of(err).Message)) }

// ClassOf returns the class of an error; ClassUnknown for one that is not of the cloud.
func ClassOf(err error) Class { return of(err).class() }

// ScopeOf returns how far a failure reaches; ScopeOffering for an error that is not of the cloud.
func ScopeOf(err error) ErrorScope { return of(err).Scope }

// aVolumeType is how the cloud names the type of a disk in its messages.
var aVolumeType = says(`volume[ _]?type|(root|data)disk\.type|loại (ổ|đĩa)`)[0]

// anOffering is how the cloud names a flavor in its messages, and what is fixed with it.
var anOffering = says(`flavor|cấu hình|\bgói\b|plan\b|\bzone\b|\btype\b|\bcategory\b|\bsize\b|dung lượng`)[0]

// of returns the typed error in an error, an empty one where it is not of the cloud.
func of(err error) *APIError {
	if found, ok := errors.AsType[*APIError](err); ok {
		return found
	}
	return &APIError{}
}

// typed copies the typed error out of whatever gobizfly and net/http wrapped around it, and types any other. Their own
// texts are dropped on purpose: gobizfly puts whole response bodies into its errors.
func typed(err error) *APIError {
	if found, ok := errors.AsType[*APIError](err); ok {
		dup := *found
		return &dup
	}
	return &APIError{Err: err}
}

// prefixed puts before the message what failed.
func prefixed(what string, err *APIError) *APIError {
	err.Message = strings.TrimSuffix(what+": "+err.Message, ": ")
	return err
}

// notSent is the error of a call that was rejected before anything left this process.
func notSent(class Class, format string, args ...any) *APIError {
	return &APIError{Class: class, NotSent: true, Message: fmt.Sprintf(format, args...)}
}

// unreadable is the error of a 2xx that makes no sense: harmless for a read, and an unknown outcome for the rest.
func unreadable(kind kind, status int, message string, cause error) *APIError {
	err := &APIError{Status: status, Class: ClassOutage, Message: message, Err: cause}
	if kind.changes() {
		err.Class, err.Ambiguous = ClassUnknown, true
	}
	return err
}

// cleanError is a cause whose text has been cleaned; errors.Is and errors.As still see the original.
type cleanError struct {
	text  string
	cause error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.cause }

// shorten cuts a text to limit runes on one line.
func shorten(text string, limit int) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}
