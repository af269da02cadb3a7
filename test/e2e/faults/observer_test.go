// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
)

// observation is what the invariants are checked against, with the pods.
type observation struct {
	invariants.Observation
	pods []corev1.Pod
}

// observe reads the cloud and the cluster. It fails while the API server is stopped.
func observe() (*observation, error) {
	at := time.Now()
	state, err := env.Sandbox().State(ctx)
	if err != nil {
		return nil, err
	}
	claims, nodes, pods := &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{claims, nodes, pods} {
		if err := env.Client().List(ctx, list); err != nil {
			return nil, err
		}
	}
	return &observation{invariants.Observation{At: at, Cloud: state, Claims: claims.Items, Nodes: nodes.Items}, pods.Items}, nil
}

// watch checks the invariants all the time, until it is stopped.
func (run *faultsRun) watch() (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			seen, err := observe()
			if err != nil {
				continue
			}
			for _, violation := range checker.Violations(seen.Observation) {
				violated("%s", violation)
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-over
	})
}

// unsettled returns what is not yet as it must be once all faults have ended.
func (run *faultsRun) unsettled() []string {
	seen, err := observe()
	if err != nil {
		return []string{err.Error()}
	}
	open := checker.Unsettled(seen.Observation)
	running := runningServers(seen)
	bound := lo.CountBy(seen.pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning && running[p.Spec.NodeName]
	})
	if bound != int(run.wanted) {
		open = append(open, fmt.Sprintf("%d of %d pods run", bound, run.wanted))
	}
	return open
}

func runningServers(seen *observation) map[string]bool {
	return lo.SliceToMap(checker.Own(seen.Observation), func(s cloud.Server) (string, bool) { return s.Name, s.Status == cloud.StatusActive })
}

// left returns what remains after the workload and the NodePool are deleted.
func (run *faultsRun) left() []string {
	seen, err := observe()
	if err != nil {
		return []string{err.Error()}
	}
	open := checker.Unsettled(seen.Observation)
	for _, claim := range seen.Claims {
		open = append(open, fmt.Sprintf("NodeClaim %s is left", claim.Name))
	}
	for _, node := range seen.Nodes {
		open = append(open, fmt.Sprintf("Node %s is left", node.Name))
	}
	slices.SortFunc(open, strings.Compare)
	return slices.Compact(open)
}

// mend does at once what would take longer than a run: it deletes the pods of a server that is gone, for which core waits a minute, and changes
// a NodeClass whose launches are paused, which ends after ten minutes.
func (run *faultsRun) mend() {
	seen, err := observe()
	if err != nil {
		return
	}
	running := runningServers(seen)
	for i := range seen.pods {
		pod := &seen.pods[i]
		if pod.DeletionTimestamp != nil && seen.At.After(pod.DeletionTimestamp.Add(5*time.Second)) && !running[pod.Spec.NodeName] {
			event("pod %s is deleted by force, because its node does not respond", pod.Name)
			insist(func() error {
				return client.IgnoreNotFound(env.Client().Delete(ctx, pod, client.GracePeriodSeconds(0)))
			})
		}
	}
	class := &v1alpha1.BizflyNodeClass{}
	if env.Client().Get(ctx, types.NamespacedName{Name: run.class.Name}, class) != nil ||
		!class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsFalse() || class.Generation > run.class.Generation {
		return
	}
	event("the NodeClass is changed, because its launches are paused: %s", class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).Message)
	class.Spec.PlacementStrategy = v1alpha1.PlacementStrategySpread
	if env.Client().Update(ctx, class) == nil {
		run.class = class
	}
}
