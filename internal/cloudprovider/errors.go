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
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
)

// Reasons of the Launched condition and of failed launches, stable because users and alerts match them. Core's schema
// takes CamelCase only.
const (
	ReasonAwaitingServerID           = "AwaitingServerID"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeClassNotReady          = "NodeClassNotReady"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonInstanceTypesUnavailable   = "InstanceTypeResolutionFailed"
	ReasonLaunchRequestInvalid       = "LaunchRequestInvalid"
	ReasonLaunchPermissionDenied     = "LaunchPermissionDenied"
	ReasonLaunchAuthenticationFailed = "LaunchAuthenticationFailed"
	ReasonLaunchResourceNotFound     = "LaunchResourceNotFound"
	ReasonLaunchConflict             = "LaunchConflict"
	ReasonLaunchFailed               = "LaunchFailed"
	ReasonLaunchNotSent              = "LaunchNotSent"
)

// ErrNotRegistered is the failure of a launch whose server came up and whose node did not register in time.
var ErrNotRegistered = errors.New("the node did not register within core's registration timeout of 15 minutes")

// reasons name the classes of errors; any other is a launch that failed.
var reasons = map[bizfly.Class]string{
	bizfly.ClassCapacity:   capacity.ReasonInsufficientCapacity,
	bizfly.ClassQuota:      capacity.ReasonQuotaExceeded,
	bizfly.ClassBalance:    capacity.ReasonBalanceExhausted,
	bizfly.ClassInvalid:    ReasonLaunchRequestInvalid,
	bizfly.ClassPermission: ReasonLaunchPermissionDenied,
	bizfly.ClassAuth:       ReasonLaunchAuthenticationFailed,
	bizfly.ClassNotFound:   ReasonLaunchResourceNotFound,
	bizfly.ClassConflict:   ReasonLaunchConflict,
}

// failure is what is known of a failed launch.
type failure struct {
	err    error
	reason string
	scope  bizfly.ErrorScope
	// noCapacity is true when the cloud says that there is no capacity, quota or balance: every NodeClass meets the same, and
	// it is no fault of this one.
	noCapacity bool
}

// failureOf classifies the error of a failed launch.
func failureOf(err error) failure {
	class := bizfly.ClassOf(err)
	f := failure{err: err, reason: ReasonLaunchFailed, scope: bizfly.ScopeOf(err)}
	if reason, known := reasons[class]; known {
		f.reason = reason
	}
	f.noCapacity = class == bizfly.ClassCapacity || f.scope == bizfly.ScopeAccount || f.scope == bizfly.ScopeSize
	switch {
	case errors.Is(err, instance.ErrOutcomeUnknown):
		f.reason = ReasonLaunchOutcomeUnknown
	case errors.Is(err, ErrNotRegistered):
		f.reason = ReasonNotRegistered
	}
	return f
}

// retryable reports whether nothing is known to be wrong with a launch that was not sent: a failure of the Kubernetes API,
// of our own rate limit or of the connection, or the cloud's rate limit.
func retryable(err error) bool {
	var apiError *bizfly.APIError
	return !errors.As(err, &apiError) || bizfly.IsRetryable(err)
}

// createError keeps the NodeClaim: core shows reason and message on it and calls Create again.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, shorten(err.Error()))
}

// noRoom makes core delete the NodeClaim and plan anew.
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
