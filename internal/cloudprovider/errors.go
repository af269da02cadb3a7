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

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// Reasons of the Launched condition, stable because people and alerts match them. Core's schema takes CamelCase only.
const (
	ReasonAwaitingServerID           = "AwaitingServerID"
	ReasonAwaitingLaunchOutcome      = "AwaitingLaunchOutcome"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeClassReadinessUnknown  = "NodeClassReadinessUnknown"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonInstanceTypesUnavailable   = "InstanceTypeResolutionFailed"
	ReasonLaunchRequestInvalid       = "LaunchRequestInvalid"
	ReasonLaunchPermissionDenied     = "LaunchPermissionDenied"
	ReasonLaunchAuthenticationFailed = "LaunchAuthenticationFailed"
	ReasonLaunchResourceNotFound     = "LaunchResourceNotFound"
	ReasonLaunchConflict             = "LaunchConflict"
	ReasonLaunchFailed               = "LaunchFailed"
)

// scope is how much a failed launch says about other launches.
type scope int

const (
	// scopeOffering says that this offering is sold out. The zero value says nothing: a throttled cloud or an outage is
	// no lack of room, and what we asked for wrongly is ours.
	scopeOffering scope = iota + 1
	// scopeAccount says that no launch can succeed for a while.
	scopeAccount
)

// meaning is what a class of errors means for a launch.
type meaning struct {
	is     func(error) bool
	reason string
	scope  scope
	// cannot is true when the same order will fail again until somebody changes something.
	cannot bool
}

// meanings is every class of errors that decides something; any other is retried as it is.
var meanings = []meaning{
	{is: bizfly.IsCapacity, reason: capacity.ReasonInsufficientCapacity, scope: scopeOffering},
	{is: bizfly.IsQuota, reason: capacity.ReasonQuotaExceeded, scope: scopeAccount},
	{is: bizfly.IsBalance, reason: capacity.ReasonBalanceExhausted, scope: scopeAccount},
	{is: bizfly.IsInvalid, reason: ReasonLaunchRequestInvalid, cannot: true},
	{is: bizfly.IsPermission, reason: ReasonLaunchPermissionDenied, cannot: true},
	{is: bizfly.IsAuth, reason: ReasonLaunchAuthenticationFailed, cannot: true},
	{is: bizfly.IsNotFound, reason: ReasonLaunchResourceNotFound, cannot: true},
	{is: bizfly.IsConflict, reason: ReasonLaunchConflict, cannot: true},
}

// meaningOf classifies an error of the cloud.
func meaningOf(err error) meaning {
	for _, m := range meanings {
		if m.is(err) {
			return m
		}
	}
	return meaning{reason: ReasonLaunchFailed}
}

// ambiguous says that an order may have been accepted although it failed: also where its context ended in flight.
func ambiguous(err error) bool {
	if bizfly.IsNotSent(err) {
		return false
	}
	return bizfly.IsAmbiguous(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// createError keeps the claim: core shows reason and message on it and calls Create again.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, shorten(err.Error()))
}

// noRoom makes core delete the claim and plan anew.
func noRoom(format string, args ...any) error {
	return cloudprovider.NewInsufficientCapacityError(fmt.Errorf(format, args...))
}

// shorten cuts a condition's message at a rune boundary, since the cloud also speaks Vietnamese.
func shorten(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
