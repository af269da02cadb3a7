// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"strings"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of a condition that is false: the user must do something. Those of BootstrapReady are the bootstrap
// provider's.
const (
	// reasonZoneNotFound says that spec.zones names a zone that the region does not have.
	reasonZoneNotFound = "ZoneNotFound"
	// reasonNoZones says that no zone is left that is open, allowed by spec.zones and in every network.
	reasonNoZones = "NoZones"
	// reasonImageNotFound says that no term of spec.imageSelectorTerms matches anything.
	reasonImageNotFound = "ImageNotFound"
	// reasonImageUnsuitable says that the image does not suit spec.bootstrapMode or spec.userData.
	reasonImageUnsuitable = "ImageUnsuitable"
	// reasonNetworkNotFound says that a term of spec.networkSelectorTerms matches nothing or several networks, or there
	// is no default.
	reasonNetworkNotFound = "NetworkNotFound"
	// reasonFirewallNotFound says that a term of spec.firewallSelectorTerms matches nothing.
	reasonFirewallNotFound = "FirewallNotFound"
	// reasonSSHKeyNotFound says that the key of spec.sshKeyName does not exist for the controller's user.
	reasonSSHKeyNotFound = "SSHKeyNotFound"
	// reasonRootDiskTooSmall says that the image or snapshot needs more than spec.rootDisk.size.
	reasonRootDiskTooSmall = "RootDiskTooSmall"
	// reasonDiskNotSold says that a disk is available in no zone that may be used.
	reasonDiskNotSold = "DiskNotSold"
	// reasonDisksNotTogether says that each disk is available, but nowhere all of them for servers of one category.
	reasonDisksNotTogether = "DisksNotSoldTogether"
	// reasonFlavorNotFound says that no term of spec.flavorSelectorTerms matches any flavor of the cloud.
	reasonFlavorNotFound = "FlavorNotFound"
	// reasonNoFlavors says that zones, billing plan, disks and selector together leave no flavor.
	reasonNoFlavors = "NoFlavors"
	// reasonNoEgress says that servers reach nothing outside of their networks, by no public address and no internet
	// gateway.
	reasonNoEgress = "NoEgress"
	// reasonCiliumMayBypass says that the pod network may route past the rule that keeps pods off the metadata service.
	reasonCiliumMayBypass = "CiliumMayBypass"
)

// Reasons of a condition that is unknown or, with the first, still true: what was found last stays in use.
const (
	// reasonCloudUnavailable says that the cloud did not answer: what was resolved for this spec stays in use.
	reasonCloudUnavailable = "CloudUnavailable"
	// reasonAwaitingNetworks says that NetworksReady must become true first.
	reasonAwaitingNetworks = "AwaitingNetworks"
	// reasonAwaitingZones says that ZonesReady must become true first.
	reasonAwaitingZones = "AwaitingZones"
	// reasonAwaitingBootstrap says that BootstrapReady must become true first.
	reasonAwaitingBootstrap = "AwaitingBootstrap"
	// reasonAwaitingDisks says that DisksReady must become true first.
	reasonAwaitingDisks = "AwaitingDisks"
)

const (
	// retryMissing is how soon something that the user has yet to create is looked up again.
	retryMissing = time.Minute
	// retryUnavailable is how soon a cloud that did not answer is asked again.
	retryUnavailable = 20 * time.Second

	// maxMessage is how many characters a cloud can put into a condition.
	maxMessage = 1024
)

// result is the outcome of one sub-reconciler.
type result struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	// err is why the cloud could not be asked.
	err error
	// retryAfter is 0 when there is nothing to wait for.
	retryAfter time.Duration
}

// fine is the result where nothing is wrong; notes are what the user may want to know.
func fine(notes ...string) result {
	return result{status: metav1.ConditionTrue, message: strings.Join(notes, "; ")}
}

// missing is the result where the user must do something.
func missing(reason, message string) result {
	return result{status: metav1.ConditionFalse, reason: reason, message: message, retryAfter: retryMissing}
}

// doubtful is the result where the user may want to do something, but need not.
func doubtful(reason, message string) result {
	return result{status: metav1.ConditionFalse, reason: reason, message: message}
}

// awaiting is the result where another condition must become true first.
func awaiting(reason, message string) result {
	return result{status: metav1.ConditionUnknown, reason: reason, message: message, retryAfter: retryUnavailable}
}

// unavailable is the result where the cloud could not be asked, which does not classify the NodeClass.
func unavailable(err error) result {
	return result{status: metav1.ConditionUnknown, reason: reasonCloudUnavailable, retryAfter: retryUnavailable, err: err,
		message: "what was resolved last cannot be checked: " + err.Error()}
}

// missingOr distinguishes what the cloud reports as missing from a cloud that could not be asked.
func missingOr(err error, reason string) result {
	if lookup.IsNotFound(err) {
		return missing(reason, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return unavailable(err)
}

// orStale keeps a condition true that was true for this spec while the cloud cannot be asked: a launch with what does
// not exist any more fails by itself.
func (f result) orStale(resolved bool) result {
	if f.reason == reasonCloudUnavailable && resolved {
		f.status = metav1.ConditionTrue
	}
	return f
}

// isStale reports whether a condition is true on what was resolved before.
func isStale(condition opstatus.Condition) bool {
	return condition.IsTrue() && condition.Reason == reasonCloudUnavailable
}

// nameOnce refers to the condition that has named the same cause before; named has those by cause. What is stale says
// so itself.
func (f result) nameOnce(named map[error]string, conditionType string) result {
	for _, cause := range []error{catalog.ErrNotReady, catalog.ErrClusterUnknown} {
		if !errors.Is(f.err, cause) || f.status == metav1.ConditionTrue {
			continue
		}
		if before, ok := named[cause]; ok {
			f.message = "its cause is that of " + before
		} else {
			named[cause] = conditionType
		}
	}
	return f
}

func (f result) apply(conditions opstatus.ConditionSet, conditionType string) {
	conditions.Set(opstatus.Condition{
		Type:    conditionType,
		Status:  f.status,
		Reason:  lo.CoalesceOrEmpty(f.reason, conditionType),
		Message: lo.Ellipsis(f.message, maxMessage),
	})
}

// explain puts the reasons themselves on Ready, because core repeats them on each NodePool of the class and
// "UnhealthyDependents" does not help a user. While it is true, they are those of what is stale. They are in the order
// in which conditions depend on each other, and not in that of the list, which is that of their last changes.
func explain(conditions opstatus.ConditionSet, order []string) {
	ready := conditions.Root()
	culprits := lo.FilterMap(order, func(conditionType string, _ int) (opstatus.Condition, bool) {
		c := lo.FromPtr(conditions.Get(conditionType))
		return c, conditions.IsDependentCondition(conditionType) && c.Status == ready.Status && (!c.IsTrue() || isStale(c))
	})
	if len(culprits) == 0 {
		return
	}
	conditions.Set(opstatus.Condition{
		Type:   opstatus.ConditionReady,
		Status: ready.Status,
		Reason: culprits[0].Reason,
		Message: lo.Ellipsis(strings.Join(lo.Map(culprits, func(c opstatus.Condition, _ int) string {
			return c.Type + ": " + c.Message
		}), "; "), maxMessage),
	})
}

// summaryOf is what the columns of kubectl get show.
func summaryOf(nodeClass *v1alpha1.BizflyNodeClass, ready *opstatus.Condition) *v1alpha1.NodeClassSummary {
	return &v1alpha1.NodeClassSummary{
		Reason: lo.Ternary(ready.IsTrue(), "", ready.Reason),
		Zones:  strings.Join(nodeClass.Status.Zones, ","),
		Networks: strings.Join(lo.Map(nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string {
			return lo.CoalesceOrEmpty(n.Name, n.ID)
		}), ","),
	}
}
