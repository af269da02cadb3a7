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

package providerconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/samber/lo"

	bizflyevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the condition TuningReady.
const (
	// ReasonConfigMapForbidden says that the ConfigMap named is not the one that the Role grants.
	ReasonConfigMapForbidden = "ConfigMapForbidden"
	// ReasonConfigMapNotFound says that the ConfigMap named does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonConfigMapUnreadable says that the ConfigMap could not be read.
	ReasonConfigMapUnreadable = "ConfigMapUnreadable"
	// ReasonKeysIgnored is that of a tuning of which some keys are invalid, which the message names.
	ReasonKeysIgnored = "KeysIgnored"
)

// maxProblems bounds the message of the condition; each problem has an event as well.
const maxProblems = 10

// tuningCondition reports what came of the tuning, and records what is active. Invalid keys leave the condition true: the
// others are active, and these keep their last valid values.
func (c *Controller) tuningCondition(object *v1alpha1.ProviderConfig, result *tuning.Result) {
	conditions := object.StatusConditions()
	object.Status.Tuning = result.Active
	for _, problem := range result.Problems {
		c.recorder.Publish(bizflyevents.TuningIgnored(object, result.ConfigMap, problem.String()))
	}
	if len(result.Changed) > 0 {
		c.recorder.Publish(bizflyevents.TuningApplied(object, result.Changed))
	}
	switch {
	case result.Err != nil:
		reason := reasonOf(result.Err)
		conditions.SetFalse(v1alpha1.ConditionTypeTuningReady, reason, result.Err.Error())
		c.recorder.Publish(bizflyevents.TuningUnusable(object, reason, result.Err))
	case len(result.Problems) > 0:
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeTuningReady, ReasonKeysIgnored, summary(result.Problems))
	default:
		conditions.SetTrue(v1alpha1.ConditionTypeTuningReady)
	}
}

func reasonOf(err error) string {
	forbidden := (*tuning.ForbiddenError)(nil)
	switch {
	case errors.As(err, &forbidden):
		return ReasonConfigMapForbidden
	case errors.Is(err, tuning.ErrNotFound):
		return ReasonConfigMapNotFound
	}
	return ReasonConfigMapUnreadable
}

func summary(problems []tuning.Problem) string {
	texts := lo.Map(problems[:min(len(problems), maxProblems)], func(p tuning.Problem, _ int) string { return p.String() })
	if more := len(problems) - maxProblems; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ". ")
}
