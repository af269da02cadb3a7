// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

// Reasons of the condition Launched, of the NodeClaims that end, and of failed launches. They are stable because users
// and alerts match them. Core's schema takes CamelCase only.
const (
	ReasonAwaitingServerID           = "AwaitingServerID"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeClassUnresolved        = "NodeClassUnresolved"
	ReasonNodeClassNotReady          = "NodeClassNotReady"
	ReasonNodeClassReadinessUnknown  = "NodeClassReadinessUnknown"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonSavingPlanNotStatic        = "SavingPlanOnDynamicNodePool"
	ReasonInstanceTypesUnavailable   = "InstanceTypeResolutionFailed"
	ReasonLaunchNotPrepared          = "LaunchNotPrepared"
	ReasonLaunchRequestInvalid       = "LaunchRequestInvalid"
	ReasonLaunchPermissionDenied     = "LaunchPermissionDenied"
	ReasonLaunchAuthenticationFailed = "LaunchAuthenticationFailed"
	ReasonLaunchResourceNotFound     = "LaunchResourceNotFound"
	ReasonLaunchConflict             = "LaunchConflict"
	ReasonLaunchFailed               = "LaunchFailed"
	ReasonLaunchNotSent              = "LaunchNotSent"
)

// Reasons of the log's lines beside those of failures.
const (
	ReasonCheapest   = "Cheapest"            // the offering was the cheapest that fits and is available
	ReasonFailedOver = "FailedOver"          // a cheaper offering, or one as cheap, was rejected before
	ReasonFound      = "Found"               // the server is that of an earlier create request, whose answer was lost
	ReasonNoOffering = "NoOfferingAvailable" // no request was sent, because nothing that fits is available

	ReasonNotRegistered = "NotRegistered" // the node did not join in time
)
