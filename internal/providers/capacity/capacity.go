// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity knows which offerings are unavailable at the moment, as recent launches have shown.
package capacity

import (
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Offering is one way to launch a flavor. As the scope of a mark an empty field means any, so that {Zone: "HN1"} is a zone,
// {NodeClass: key} is all that a NodeClass can launch, and {} the account.
type Offering struct {
	Flavor      string
	Zone        string
	BillingPlan string
	// NodeClass is a NodeClassKey and limits a mark to launches with that NodeClass: where nothing proves that a failure is the
	// offering's, it stays available to other NodeClasses. A mark has it with all of the other fields, or with none.
	NodeClass string
}

// NodeClassKey identifies what a NodeClass launches. A changed spec or image is another key, so that marks and failures of
// the former one no longer count.
func NodeClassKey(nodeClass *v1alpha1.BizflyNodeClass) string {
	return fmt.Sprintf("%s/%d/%s", nodeClass.UID, nodeClass.Generation, nodeClass.Status.ImageID())
}

// Reasons of unavailability, also the values of the metric's label.
const (
	ReasonInsufficientCapacity = "InsufficientCapacity"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonBalanceExhausted     = "BalanceExhausted"
	// ReasonLaunchFailed says that a launch failed there for an unclassified reason.
	ReasonLaunchFailed = "LaunchFailed"
	// ReasonTrial says that one launch is under way that shows whether nodes of the NodeClass register again.
	ReasonTrial = "TrialUnderWay"
)

// Launch is what the time that a server takes depends on.
type Launch struct {
	Flavor  string
	Zone    string
	ImageID string
}

var (
	unavailableOfferings = metrics.Gauge("karpenter_bizfly_unavailable_offerings",
		"Active marks that make an offering, or a wider scope such as a zone (counted once), unavailable. By reason.", metrics.Label("reason"))
)
