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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events on a ProviderConfig. What is wrong with one is published under the reason of its condition.
const (
	ReasonConfigApplied = "Applied"
	ReasonTuningApplied = "TuningApplied"
	ReasonTuningIgnored = "TuningIgnored"
	// ReasonForeignProvider is for an older provider of this cloud in the same cluster.
	ReasonForeignProvider = "ForeignProvider"
)

// ForeignProvider reports a trace of an older provider of this cloud in the cluster.
func ForeignProvider(config *v1alpha1.ProviderConfig, found string) events.Event {
	return warning(config, string(config.UID)+found, ReasonForeignProvider, fmt.Sprintf(
		"%s. Both providers would launch servers for the same pods; remove the older one once its nodes are drained", found))
}

// ProviderConfigRefused says why a configuration is not in force; the one before stays.
func ProviderConfigRefused(config *v1alpha1.ProviderConfig, reason string, err error) events.Event {
	return events.Event{
		InvolvedObject: config,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        shorten(fmt.Sprintf("The configuration is not in force, the one before stays: %s", err)),
		DedupeValues:   []string{string(config.UID), reason, err.Error()},
	}
}

// ProviderConfigApplied says that a configuration came into force.
func ProviderConfigApplied(config *v1alpha1.ProviderConfig, scope string) events.Event {
	return events.Event{
		InvolvedObject: config,
		Type:           corev1.EventTypeNormal,
		Reason:         ReasonConfigApplied,
		Message:        shorten(fmt.Sprintf("The configuration is in force for %s", scope)),
		DedupeValues:   []string{string(config.UID), fmt.Sprint(config.Generation), scope},
	}
}

// TuningRefused says why the tuning ConfigMap cannot be used; the active values stay.
func TuningRefused(config *v1alpha1.ProviderConfig, reason string, err error) events.Event {
	event := warning(config, fmt.Sprintf("%s-%s", config.UID, err), reason, fmt.Sprintf("The tuning ConfigMap cannot be used, the active values stay: %s", err))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// TuningIgnored names an invalid key of the tuning ConfigMap, with its value, what may be used instead, and which value is
// active meanwhile.
func TuningIgnored(config *v1alpha1.ProviderConfig, configMap, problem string) events.Event {
	event := warning(config, fmt.Sprintf("%s-%s", config.UID, problem), ReasonTuningIgnored, fmt.Sprintf("ConfigMap %s: %s", configMap, problem))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// TuningApplied names the keys whose values became active.
func TuningApplied(config *v1alpha1.ProviderConfig, keys []string) events.Event {
	names := strings.Join(keys, ", ")
	event := warning(config, fmt.Sprintf("%s-%s", config.UID, names), ReasonTuningApplied, fmt.Sprintf("A changed tuning is active: %s", names))
	// Each is a change of its own, however soon it follows another one of the same key.
	event.Type, event.DedupeTimeout = corev1.EventTypeNormal, time.Millisecond
	return event
}
