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

// Package journal is the log line that each launch and each removal of a server leaves, with the same keys always, so that
// a fleet's history can be read from the log by a machine.
package journal

import (
	"math"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Messages of the lines.
const (
	// MessageLaunched says that a server was ordered and has an id.
	MessageLaunched = "launched server"
	// MessageLaunchFailed says that no server came of a launch.
	MessageLaunchFailed = "launching server failed"
	// MessageRemoved says that a server is provably gone, with what it owned.
	MessageRemoved = "removed server"
)

// Keys of the lines; each line has all of them, but a removal has no price: it is that of the launch.
const (
	KeyNodeClaim    = "NodeClaim"
	KeyServer       = "server-id"
	KeyFlavor       = "flavor"
	KeyZone         = "zone"
	KeyCapacityType = "capacity-type"
	KeyPrice        = "price-vnd-per-hour"
	KeyReason       = "reason"
	KeySeconds      = "seconds"
)

// Entry is what a line tells. What is not known stays empty and is written nevertheless.
type Entry struct {
	// NodeClaim is the name of the claim that the server is for.
	NodeClaim string
	// Server is the server's id; empty where none came into being.
	Server string
	// Flavor, Zone and CapacityType are the offering.
	Flavor       string
	Zone         string
	CapacityType string
	// Price is in VND per hour, root disk and plans included; 0 where it is not known.
	Price float64
	// Reason is why it was launched like this, why it failed, or why it was removed, in one word.
	Reason string
	// Took is the time from the order to the id or the failure, or from the first request to delete to its proof.
	Took time.Duration
}

// Journal writes the lines.
type Journal struct{ logger logr.Logger }

// New makes a Journal. The logger should carry no values of its own: those of a reconcile would give the lines of one
// event other keys than those of the next.
func New(logger logr.Logger) *Journal { return &Journal{logger: logger} }

// Launched writes that a server was launched.
func (j *Journal) Launched(entry Entry) {
	j.write(MessageLaunched, entry, KeyPrice, finite(entry.Price))
}

// LaunchFailed writes that a launch failed.
func (j *Journal) LaunchFailed(entry Entry) {
	j.write(MessageLaunchFailed, entry, KeyPrice, finite(entry.Price))
}

// Removed writes that a server is deleted.
func (j *Journal) Removed(entry Entry) { j.write(MessageRemoved, entry) }

func (j *Journal) write(message string, entry Entry, more ...any) {
	j.logger.Info(message, append([]any{
		// As controller-runtime writes it, so that one query finds all lines of a claim.
		KeyNodeClaim, klog.KRef("", entry.NodeClaim),
		KeyServer, entry.Server,
		KeyFlavor, entry.Flavor,
		KeyZone, entry.Zone,
		KeyCapacityType, entry.CapacityType,
		KeyReason, entry.Reason,
		KeySeconds, math.Round(max(0, entry.Took.Seconds())*10) / 10,
	}, more...)...)
}

// finite keeps what JSON cannot say out of the log; a fraction of a dong says nothing.
func finite(price float64) float64 {
	if math.IsNaN(price) || math.IsInf(price, 0) {
		return 0
	}
	return math.Round(price*100) / 100
}
