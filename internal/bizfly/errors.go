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
	"time"
)

// Class is what an error means to whoever asked, whatever the cloud called it.
type Class string

// The classes, one per predicate. An error has exactly one class; Unknown is a plain error that may be retried.
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
	// ClassOutage is a cloud that answers with 5xx, garbage or not at all to a call that is known not to have had an effect.
	ClassOutage Class = "Outage"
)

// APIError is the one error type of the adapter.
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
	// RetryAfter is how long the API asked to wait; 0 when it did not say.
	RetryAfter time.Duration
	// Ambiguous is true when the request may have had its effect although the answer is missing or unreadable.
	Ambiguous bool
	// NotSent is true when no byte of the request left this process.
	NotSent bool
	// Err is the cause where there is one, for example a context error or a transport error.
	Err error
}
