// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight is what `helm test` asks: whether the controller has found ready what users have configured. It
// repeats none of the controller's checks, because only what the controller has stored decides whether servers are
// launched.
package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Ready reports whether the controllers have found an object ready at its present generation, and which of its
// conditions are why it is not. Without a cause it was not checked yet.
func Ready(object status.Object) (ready bool, causes []status.Condition) {
	if v1alpha1.Resolved(object, status.ConditionReady) {
		return true, nil
	}
	conditions := object.StatusConditions(status.WithObservedOnly())
	return false, lo.Filter(conditions.List(), func(c status.Condition, _ int) bool {
		return !c.IsTrue() && c.Type != status.ConditionReady && conditions.IsDependentCondition(c.Type)
	})
}

// Look returns the conditions of the ProviderConfig and of all BizflyNodeClasses as text, and an error if there is no
// ProviderConfig, or one of these is not ready at its present generation or cannot be read.
func Look(ctx context.Context, reader client.Reader) (string, error) {
	configs, nodeClasses := &v1alpha1.ProviderConfigList{}, &v1alpha1.BizflyNodeClassList{}
	for _, list := range []client.ObjectList{configs, nodeClasses} {
		if err := reader.List(ctx, list); err != nil {
			return "", fmt.Errorf("reading what the controller has found (upgrade both charts to the same version): %w", err)
		}
	}
	var text strings.Builder
	var unready []string
	look := func(kind string, object status.Object) {
		name := kind + " " + object.GetName()
		ready, causes := Ready(object)
		if ready {
			_, _ = fmt.Fprintf(&text, "%s: ready\n", name)
			return
		}
		unready = append(unready, name)
		_, _ = fmt.Fprintf(&text, "%s: not ready\n", name)
		for _, c := range causes {
			_, _ = fmt.Fprintf(&text, "  %s is %s: %s: %q\n", c.Type, c.Status, c.Reason, c.Message)
		}
		if len(causes) == 0 {
			_, _ = fmt.Fprintf(&text, "  the controller has not checked it yet\n")
		}
	}
	for i := range configs.Items {
		look("ProviderConfig", &configs.Items[i])
	}
	for i := range nodeClasses.Items {
		look("BizflyNodeClass", &nodeClasses.Items[i])
	}
	if len(configs.Items) == 0 {
		return text.String(), fmt.Errorf("there is no ProviderConfig %s, which the controller creates after its first "+
			"login: its log names what fails",
			v1alpha1.ProviderConfigName)
	}
	if len(unready) > 0 {
		return text.String(), fmt.Errorf("not ready: %s; kubectl bizfly doctor names the remedy", strings.Join(unready, ", "))
	}
	return text.String(), nil
}
