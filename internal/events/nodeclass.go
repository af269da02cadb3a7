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

package events

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events on a BizflyNodeClass and a ProviderConfig. A condition that is false is published under its own reason.
const (
	ReasonWaitingOnNodeClaimTermination = "WaitingOnNodeClaimTermination"
	ReasonInsecureJoinEndpoint          = "InsecureJoinEndpoint"
	ReasonNodeClassStale                = "NodeClassStale"
	ReasonNodeClassUnknown              = "CloudUnavailable"

	ReasonConfigApplied = "Applied"
	ReasonTuningApplied = "TuningApplied"
	ReasonTuningIgnored = "TuningIgnored"
	// ReasonForeignProvider is for an older provider of this cloud in the same cluster.
	ReasonForeignProvider = "ForeignProvider"
)

// NodeClassNotReady reports that a condition of a NodeClass has become false, or unknown after it was true, and why. The
// condition's own reason is the event's, for example ImageNotFound.
func NodeClassNotReady(nodeClass *v1alpha1.BizflyNodeClass, condition status.Condition) karpevents.Event {
	return warning(nodeClass, fmt.Sprintf("%s-%s-%s", nodeClass.UID, condition.Type, condition.Message), condition.Reason,
		"%s: %s", condition.Type, condition.Message)
}

// NodeClassStale reports that a condition of a NodeClass stays true on what was resolved before, because it cannot be checked.
func NodeClassStale(nodeClass *v1alpha1.BizflyNodeClass, condition status.Condition) karpevents.Event {
	return warning(nodeClass, fmt.Sprintf("%s-%s", nodeClass.UID, condition.Type), ReasonNodeClassStale, "%s: %s", condition.Type, condition.Message)
}

// WaitingOnNodeClaimTermination reports that a NodeClass which is being deleted stays until nothing uses it any more.
func WaitingOnNodeClaimTermination(nodeClass *v1alpha1.BizflyNodeClass, nodeClaims []string) karpevents.Event {
	return normal(warning(nodeClass, string(nodeClass.UID), ReasonWaitingOnNodeClaimTermination,
		"Waiting until the %d NodeClaims that use it are deleted: %s", len(nodeClaims), some(slices.Sorted(slices.Values(nodeClaims)))))
}

// InsecureJoinEndpoint reports that servers join without TLS, and what to do about it.
func InsecureJoinEndpoint(nodeClass *v1alpha1.BizflyNodeClass, message string) karpevents.Event {
	return warning(nodeClass, string(nodeClass.UID), ReasonInsecureJoinEndpoint, "%s", message)
}

// ProviderConfigRejected reports why a configuration is not applied; the active one stays.
func ProviderConfigRejected(config *v1alpha1.ProviderConfig, reason string, err error) karpevents.Event {
	return warning(config, fmt.Sprintf("%s-%s", config.UID, err), reason, "The configuration is not applied, the active one stays: %s", err)
}

// ProviderConfigApplied reports that a configuration became active.
func ProviderConfigApplied(config *v1alpha1.ProviderConfig, scope string) karpevents.Event {
	return normal(warning(config, fmt.Sprintf("%s-%d-%s", config.UID, config.Generation, scope), ReasonConfigApplied, "The configuration is active for %s", scope))
}

// TuningUnusable reports why the tuning ConfigMap cannot be used; the active values stay.
func TuningUnusable(config *v1alpha1.ProviderConfig, reason string, err error) karpevents.Event {
	return every(seldom, warning(config, fmt.Sprintf("%s-%s", config.UID, err), reason, "The tuning ConfigMap cannot be used, the active values stay: %s", err))
}

// TuningIgnored names an invalid key of the tuning ConfigMap, with its value, what may be used instead, and which value is
// active meanwhile.
func TuningIgnored(config *v1alpha1.ProviderConfig, configMap, problem string) karpevents.Event {
	return every(seldom, warning(config, fmt.Sprintf("%s-%s", config.UID, problem), ReasonTuningIgnored, "ConfigMap %s: %s", configMap, problem))
}

// TuningApplied names the keys whose values became active.
func TuningApplied(config *v1alpha1.ProviderConfig, keys []string) karpevents.Event {
	names := strings.Join(keys, ", ")
	// Each is a change of its own, however soon it follows another one of the same key.
	return every(time.Millisecond, normal(warning(config, fmt.Sprintf("%s-%s", config.UID, names), ReasonTuningApplied, "Changed tuning is active: %s", names)))
}

// ForeignProvider reports a trace of an older provider of this cloud in the cluster.
func ForeignProvider(config *v1alpha1.ProviderConfig, found string) karpevents.Event {
	return warning(config, string(config.UID)+found, ReasonForeignProvider,
		"%s. Both providers would launch servers for the same pods; remove the older one once its nodes are drained", found)
}

// On returns the event for the ProviderConfig as well, where `kubectl describe` shows it beside the configuration.
func On(config *v1alpha1.ProviderConfig, event karpevents.Event) karpevents.Event {
	event.InvolvedObject = config
	event.DedupeValues = append(slices.Clone(event.DedupeValues), string(config.UID))
	return event
}
