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

package instance

import "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"

const (
	labelOutcome = "outcome"
	labelFlavor  = "flavor"
	labelZone    = "zone"
	labelType    = "type"
)

// Outcomes of a launch and of a deletion.
const (
	outcomeLaunched = "launched"
	outcomeRejected = "rejected"
	outcomeFailed   = "failed"
	outcomeUnknown  = "unknown"
	outcomeAccepted = "accepted"
	outcomeError    = "error"
)

var (
	launchesTotal = metrics.Counter("instance_launches_total",
		"Create requests, by flavor, zone and outcome: launched, rejected, failed or unknown.",
		metrics.Label(labelOutcome), metrics.Label(labelFlavor), metrics.Label(labelZone))
	launchSeconds = metrics.Histogram("instance_launch_seconds",
		"Seconds from the answer to a create request until its server had an id, by flavor and zone.",
		[]float64{0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480},
		metrics.Label(labelFlavor), metrics.Label(labelZone))
	deletionsTotal = metrics.Counter("instance_deletions_total",
		"Deletions of servers sent to the cloud, by whether it accepted them: accepted or error.",
		metrics.Enum(labelOutcome, outcomeAccepted, outcomeError))
	startsTotal = metrics.Counter("instance_starts_total",
		"Requests to start stopped servers.")
	rebootsTotal = metrics.Counter("instance_reboots_total",
		"Reboots of servers sent to the cloud, by outcome: accepted, error, or unknown where the answer was lost.",
		metrics.Enum(labelOutcome, outcomeAccepted, outcomeError, outcomeUnknown))
	inPlaceChangesTotal = metrics.Counter("instance_in_place_changes_total",
		"Changes made to running servers without replacing them, by what was changed: name, network_plan or firewalls.",
		metrics.Label("change"))
	addressesReleasedTotal = metrics.Counter("instance_addresses_released_total",
		"Network interfaces that outlived their server and were released, by type: LAN or WAN.",
		metrics.Label(labelType))
	leftoversGauge = metrics.Gauge("leftovers",
		"Deleted servers of which disks, addresses or the node in BKE could not be removed for ten minutes, and are tried again.")
	diskDeletionsTotal = metrics.Counter("instance_disk_deletions_total",
		"Deletions of disks that outlived their server, by whether the cloud accepted them: accepted or error.",
		metrics.Enum(labelOutcome, outcomeAccepted, outcomeError))
)
