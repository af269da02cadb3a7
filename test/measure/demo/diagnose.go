// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// diagnose shows what a user would check first when the demo fails.
func (t *timeline) diagnose(env *environment.Environment) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := t.look(ctx); err != nil {
		t.print("look", "%v", err)
	}
	for i := range t.last.classes {
		class := &t.last.classes[i]
		for _, c := range class.GetConditions() {
			if !c.IsTrue() {
				t.print("class", "%s %s=%s %s: %s", class.Name, c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	for i := range t.last.claims {
		claim := &t.last.claims[i]
		for _, c := range claim.GetConditions() {
			if !c.IsTrue() {
				t.print("claim", "%s %s=%s %s: %s", claim.Name, c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	for _, pod := range t.last.pods {
		if pod.Spec.NodeName == "" {
			t.print("pod", "%s is pending", pod.Name)
		}
	}
	for _, node := range t.last.nodes {
		t.print("node", "%s ready=%v deleting=%v taints=%v", node.Name, ready(node), node.DeletionTimestamp != nil, node.Spec.Taints)
	}
	for _, server := range t.last.servers {
		t.print("server", "%s %s", server.Name, server.Status)
	}
	t.warnings(ctx, env)
	t.print("log", "the last lines of the controller:\n%s", env.Log("controller", 30))
}

// warnings shows the events that report a problem or a reason to do nothing.
func (t *timeline) warnings(ctx context.Context, env *environment.Environment) {
	var events corev1.EventList
	if err := env.Client().List(ctx, &events); err != nil {
		t.print("look", "%v", err)
	}
	for _, event := range events.Items {
		// Every pod of the demo fails to be scheduled at first; that is its point.
		if event.Type == corev1.EventTypeWarning && event.Reason != "FailedScheduling" || strings.Contains(event.Reason, "onsolidat") ||
			strings.Contains(event.Reason, "Disruption") {
			t.print("event", "%s %s: %s: %s (%d times, last at %s)", event.InvolvedObject.Kind, event.InvolvedObject.Name,
				event.Reason, event.Message, event.Count, event.LastTimestamp.Format(time.TimeOnly))
		}
	}
}
