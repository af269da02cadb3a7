// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Account says what is unpaid, and nothing where nothing is.
type Account interface {
	Unpaid(ctx context.Context) (string, error)
}

// Servers starts servers that are stopped.
type Servers interface {
	Get(ctx context.Context, id string) (*instance.Instance, error)
	Reboot(ctx context.Context, id, operationID string) error
}

// silent reports whether the kubelet does not report.
func silent(node *corev1.Node) bool {
	return nodeutils.GetCondition(node, corev1.NodeReady).Status == corev1.ConditionUnknown
}

// unpaid reports whether a node is silent because the account is unpaid, or was when it was last known. BizFly Cloud
// stops all servers of an account that it suspends, and accepts neither their reboot nor a replacement: core would end
// a NodeClaim whose reboot is not accepted, and one whose pods were evicted. Once the account is paid, it holds until
// the server is started.
func (c *Controller) unpaid(ctx context.Context, node *corev1.Node) bool {
	if !silent(node) {
		return false
	}
	before := lo.HasKey(node.Annotations, v1alpha1.AnnotationDoNotRepairReason) ||
		node.Annotations[v1alpha1.AnnotationDoNotDisruptReason] == accountUnpaid
	owed, err := c.account.Unpaid(ctx)
	switch {
	case err != nil:
		return before // it is asked again, and counted by the metric of requests
	case owed != "" || !before:
		return owed != ""
	}
	if err := c.start(ctx, node); err != nil {
		c.recorder.Publish(events.ServerNotStarted(node, err))
		return true
	}
	return false
}

// start starts the server of a node, where it is stopped. Core's repair does not, while many nodes of a NodePool are
// silent. What a user keeps from repair stays as it is: the user may have stopped the server.
func (c *Controller) start(ctx context.Context, node *corev1.Node) error {
	id, ok := providerid.Parse(node.Spec.ProviderID)
	if !ok || !lo.HasKey(node.Annotations, v1alpha1.AnnotationDoNotRepairReason) {
		return nil
	}
	server, err := c.servers.Get(ctx, id)
	if errors.Is(err, instance.ErrNotFound) || err == nil && !server.Stopped() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading server %s: %w", id, err)
	}
	// Once for each time that the kubelet fell silent.
	since := nodeutils.GetCondition(node, corev1.NodeReady).LastTransitionTime
	return c.servers.Reboot(ctx, id, fmt.Sprintf("%s-unpaid-%d", node.UID, since.Unix()))
}
