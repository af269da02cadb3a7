// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
)

// Skew compares the plugin with the controller in the cluster.
type Skew struct {
	Plugin     string `json:"plugin"`
	Controller string `json:"controller"`
	// Message says what differs; empty where the answers of both agree.
	Message string `json:"message,omitempty"`
}

// Skew returns the versions. Both compute with the same code only where major and minor version are the same.
func (s *Session) Skew() Skew {
	skew := Skew{Plugin: coreoperator.Version, Controller: "not installed"}
	if s.Cluster == nil {
		skew.Controller = "unknown (no cluster)"
	}
	if s.Deployment == nil {
		return skew
	}
	container, _ := lo.Find(s.Deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "controller" })
	image := container.Image
	if at := strings.Index(image, "@"); at >= 0 {
		image = image[:at]
	}
	skew.Controller = lo.CoalesceOrEmpty(s.Deployment.Labels["app.kubernetes.io/version"], image[strings.LastIndex(image, ":")+1:], "unknown")
	ours, errOurs := utilversion.ParseGeneric(skew.Plugin)
	theirs, errTheirs := utilversion.ParseGeneric(skew.Controller)
	differ := skew.Plugin != skew.Controller
	if errOurs == nil && errTheirs == nil {
		differ = ours.Major() != theirs.Major() || ours.Minor() != theirs.Minor()
	}
	if differ {
		skew.Message = fmt.Sprintf("the plugin is version %s and the controller %s; their answers may differ. Install the plugin "+
			"of the controller's version", skew.Plugin, skew.Controller)
	}
	return skew
}
