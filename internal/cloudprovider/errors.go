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

	"github.com/samber/lo"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
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
	ReasonNodeClassReadinessUnknown  = "NodeClassReadinessUnknown"
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

// Reasons of the audit log's lines beside those of failures.
const (
	// ReasonCheapest says that the offering was the cheapest that fits and is available.
	ReasonCheapest = "Cheapest"
	// ReasonFailedOver says that a cheaper offering, or one as cheap, was rejected just before.
	ReasonFailedOver = "FailedOver"
	// ReasonFound says that the server is that of an earlier create request, whose answer was lost.
	ReasonFound = "Found"
	// ReasonNoOffering says that no request was sent, because nothing that fits is available.
	ReasonNoOffering = "NoOfferingAvailable"

	// ReasonNotRegistered says that the node did not join in time.
	ReasonNotRegistered = "NotRegistered"
	// ReasonExpired says that the node had reached its NodePool's expireAfter.
	ReasonExpired = "Expired"
	// ReasonDeleted says that a user or another controller deleted the NodeClaim, the Node or the NodePool.
	ReasonDeleted = "Deleted"
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

// failure is a failed launch, classified.
type failure struct {
	err    error
	reason string
	scope  bizfly.ErrorScope
	// noCapacity is true for lack of capacity, quota or balance: every NodeClass meets the same, and this one is not at fault.
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

// maxMessage bounds the message of a condition, in characters.
const maxMessage = 300

// createError keeps the NodeClaim: core shows reason and message on it and calls Create again.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, lo.Ellipsis(err.Error(), maxMessage))
}

// insufficientCapacity makes core delete the NodeClaim and plan anew.
func insufficientCapacity(format string, args ...any) error {
	return cloudprovider.NewInsufficientCapacityError(fmt.Errorf(format, args...))
}

// launchFailuresTotal counts launches that failed.
var launchFailuresTotal = metrics.Counter("launch_failures_total",
	"Launches that BizFly Cloud rejected, failed to build or left without an answer, whose node did not register, or that were not sent, by reason.",
	metrics.Enum("reason", append(lo.Values(reasons), ReasonLaunchFailed, ReasonLaunchOutcomeUnknown, ReasonNotRegistered, ReasonNodeClassNotReady,
		ReasonLaunchNotSent)...))
