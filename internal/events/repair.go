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
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of the events about servers that do not run.
const (
	ReasonServerNotRunning  = "ServerNotRunning"
	ReasonServerRunning     = "ServerRunning"
	ReasonServerStartFailed = "ServerStartFailed"
)

// ServerNotRunning reports that the NodeClaim's server runs nothing: why, and what happens next.
func ServerNotRunning(claim *karpv1.NodeClaim, reason, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+reason, ReasonServerNotRunning,
		fmt.Sprintf("The server %s of node %s does not run (%s); %s", claim.Status.ProviderID, claim.Status.NodeName, reason, consequence))
}

// ServerRunning reports that the server runs again.
func ServerRunning(claim *karpv1.NodeClaim, after time.Duration) karpevents.Event {
	event := warning(claim, string(claim.UID), ReasonServerRunning,
		fmt.Sprintf("The server %s of node %s runs again after %s", claim.Status.ProviderID, claim.Status.NodeName, after.Round(time.Second)))
	event.Type = "Normal"
	return event
}

// ServerStartFailed reports that a stopped server could not be started.
func ServerStartFailed(claim *karpv1.NodeClaim, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+consequence, ReasonServerStartFailed,
		fmt.Sprintf("The server %s of node %s is not started; %s", claim.Status.ProviderID, claim.Status.NodeName, consequence))
}
