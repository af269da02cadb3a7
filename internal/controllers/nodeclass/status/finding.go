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

package status

import (
	"errors"
	"strings"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// Reasons of a condition that is false: the user must do something. Those of BootstrapReady are the bootstrap provider's.
const (
	// reasonZoneNotFound says that spec.zones names a zone that the region does not have.
	reasonZoneNotFound = "ZoneNotFound"
	// reasonNoZones says that no zone is left that is open, allowed by spec.zones and in every network.
	reasonNoZones = "NoZones"
	// reasonImageNotFound says that no term of spec.imageSelectorTerms matches anything.
	reasonImageNotFound = "ImageNotFound"
	// reasonNetworkNotFound says that a term of spec.networkSelectorTerms matches nothing, or there is no default.
	reasonNetworkNotFound = "NetworkNotFound"
	// reasonFirewallNotFound says that a term of spec.firewallSelectorTerms matches nothing.
	reasonFirewallNotFound = "FirewallNotFound"
	// reasonSSHKeyNotFound says that the key of spec.sshKeySelectorTerms does not exist for the controller's user.
	reasonSSHKeyNotFound = "SSHKeyNotFound"
	// reasonRootDiskTooSmall says that the image or snapshot needs more than spec.rootDisk.size.
	reasonRootDiskTooSmall = "RootDiskTooSmall"
	// reasonDiskNotSold says that a disk is sold in no zone that may be used.
	reasonDiskNotSold = "DiskNotSold"
	// reasonDisksNotTogether says that each disk is sold, but nowhere all of them for servers of one category.
	reasonDisksNotTogether = "DisksNotSoldTogether"
	// reasonFlavorNotFound says that no term of spec.flavorSelectorTerms matches any flavor of the cloud.
	reasonFlavorNotFound = "FlavorNotFound"
	// reasonNoFlavors says that zones, billing plan, disks and selector together leave no flavor.
	reasonNoFlavors = "NoFlavors"
	// reasonNoEgress says that servers reach nothing outside of their networks, by no public address and no internet gateway.
	reasonNoEgress = "NoEgress"
)

// Reasons of a condition that is unknown: what was found last stays in use.
const (
	// reasonCatalogNotReady says that the controller has just started and has not read the catalog yet.
	reasonCatalogNotReady = "CatalogNotReady"
	// reasonCloudUnavailable says that the cloud did not answer, which is no verdict.
	reasonCloudUnavailable = "CloudUnavailable"
	// reasonAwaitingNetworks says that NetworksReady must become true first.
	reasonAwaitingNetworks = "AwaitingNetworks"
	// reasonAwaitingZones says that ZonesReady must become true first.
	reasonAwaitingZones = "AwaitingZones"
	// reasonAwaitingDisks says that DisksReady must become true first.
	reasonAwaitingDisks = "AwaitingDisks"
)

const (
	// retryMissing is how soon something that the user has yet to make is looked for again.
	retryMissing = time.Minute
	// retryUnavailable is how soon a cloud that did not answer is asked again.
	retryUnavailable = 20 * time.Second
	// retryCatalog is short: the catalog is read within seconds of the start, and until then nobody can launch anything.
	retryCatalog = 2 * time.Second

	// maxMessageBytes bounds what a cloud can put into a condition.
	maxMessageBytes = 1024
)

// finding is what became of one concern.
type finding struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	// retryAfter is 0 when nothing is to be waited for.
	retryAfter time.Duration
}

// fine says that all is well; notes are what the user may want to know nevertheless.
func fine(notes ...string) finding {
	return finding{status: metav1.ConditionTrue, message: strings.Join(notes, "; ")}
}

// missing says that the user must do something.
func missing(reason, message string) finding {
	return finding{status: metav1.ConditionFalse, reason: reason, message: message, retryAfter: retryMissing}
}

// doubtful says that the user may want to do something, but need not.
func doubtful(reason, message string) finding {
	return finding{status: metav1.ConditionFalse, reason: reason, message: message}
}

// awaiting says that another condition must become true first.
func awaiting(reason, message string) finding {
	return finding{status: metav1.ConditionUnknown, reason: reason, message: message, retryAfter: retryUnavailable}
}

// unavailable says that it could not be found out, which is no verdict on the NodeClass.
func unavailable(err error) finding {
	if errors.Is(err, catalog.ErrNotReady) {
		return finding{status: metav1.ConditionUnknown, reason: reasonCatalogNotReady, message: err.Error(), retryAfter: retryCatalog}
	}
	return finding{status: metav1.ConditionUnknown, reason: reasonCloudUnavailable, retryAfter: retryUnavailable,
		message: "what was found last stays in use, since this could not be found out: " + err.Error()}
}

// missingOr distinguishes what the cloud says does not exist from what it did not say.
func missingOr[T error](err error, reason string) finding {
	var miss T
	if errors.As(err, &miss) {
		return missing(reason, miss.Error())
	}
	return unavailable(err)
}

func (f finding) apply(conditions opstatus.ConditionSet, conditionType string) {
	conditions.Set(opstatus.Condition{
		Type:    conditionType,
		Status:  f.status,
		Reason:  lo.CoalesceOrEmpty(f.reason, conditionType),
		Message: shorten(f.message),
	})
}

// explain puts the reasons themselves on Ready, because that is what `kubectl get` shows and what core repeats on each
// NodePool of the class; "UnhealthyDependents" tells nobody what to do.
func explain(conditions opstatus.ConditionSet) {
	ready := conditions.Root()
	if ready.IsTrue() {
		return
	}
	culprits := lo.Filter(conditions.List(), func(c opstatus.Condition, _ int) bool {
		return c.Type != opstatus.ConditionReady && conditions.IsDependentCondition(c.Type) && c.Status == ready.Status
	})
	if len(culprits) == 0 {
		return
	}
	conditions.Set(opstatus.Condition{
		Type:   opstatus.ConditionReady,
		Status: ready.Status,
		Reason: culprits[0].Reason,
		Message: shorten(strings.Join(lo.Map(culprits, func(c opstatus.Condition, _ int) string {
			return c.Type + ": " + c.Message
		}), "; ")),
	})
}

// shorten cuts at a rune boundary.
func shorten(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessageBytes-3], "") + "..."
}
