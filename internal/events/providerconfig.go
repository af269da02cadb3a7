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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ProviderConfigRefused says why a configuration is not in force; the one before stays.
func ProviderConfigRefused(config *v1alpha1.ProviderConfig, reason string, err error) events.Event {
	return events.Event{
		InvolvedObject: config,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        fmt.Sprintf("The configuration is not in force, the one before stays: %s", err),
		DedupeValues:   []string{string(config.UID), reason, err.Error()},
	}
}

// ProviderConfigApplied says that a configuration came into force.
func ProviderConfigApplied(config *v1alpha1.ProviderConfig, scope string) events.Event {
	return events.Event{
		InvolvedObject: config,
		Type:           corev1.EventTypeNormal,
		Reason:         "Applied",
		Message:        fmt.Sprintf("The configuration is in force for %s", scope),
		DedupeValues:   []string{string(config.UID), fmt.Sprint(config.Generation), scope},
	}
}
