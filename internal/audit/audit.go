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

// Package audit writes the log line that each launch and each removal of a server leaves, always with the same keys, so that a
// program can read the history of a cluster from the log.
package audit

import (
	"math"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Messages of the lines.
const (
	MessageLaunched     = "launched server"
	MessageLaunchFailed = "launching server failed"
	// MessageRemoved says that the cloud has accepted to delete a server.
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

// Record is one line. Unknown fields are empty and written nevertheless.
type Record struct {
	// NodeClaim is the name of the NodeClaim that the server is for.
	NodeClaim string
	// Server is the server's id; empty where none came into being.
	Server string
	// Flavor and Zone are the offering, whose capacity type is always on-demand.
	Flavor string
	Zone   string
	// Price is in VND per hour, root disk and plans included; 0 where it is not known.
	Price float64
	// Reason is why it was launched like this, why it failed, or why it was removed, in one word.
	Reason string
	// Took is the time from the create request to the id or the failure, or from the NodeClaim's deletion until the cloud accepted it.
	Took time.Duration
}

// Log writes the lines.
type Log struct{ logger logr.Logger }

// New returns a Log. The logger should carry no values of its own: those of a reconcile would give the lines of one
// event other keys than those of the next.
func New(logger logr.Logger) *Log { return &Log{logger: logger} }

// Launched writes that a server was launched.
func (l *Log) Launched(record Record) {
	l.write(MessageLaunched, record, KeyPrice, finite(record.Price))
}

// LaunchFailed writes that a launch failed.
func (l *Log) LaunchFailed(record Record) {
	l.write(MessageLaunchFailed, record, KeyPrice, finite(record.Price))
}

// Removed writes that a server is deleted.
func (l *Log) Removed(record Record) { l.write(MessageRemoved, record) }

func (l *Log) write(message string, record Record, more ...any) {
	l.logger.Info(message, append([]any{
		// As controller-runtime writes it, so that one query finds all lines of a NodeClaim.
		KeyNodeClaim, klog.KRef("", record.NodeClaim),
		KeyServer, record.Server,
		KeyFlavor, record.Flavor,
		KeyZone, record.Zone,
		KeyCapacityType, karpv1.CapacityTypeOnDemand,
		KeyReason, record.Reason,
		KeySeconds, math.Round(max(0, record.Took.Seconds())*10) / 10,
	}, more...)...)
}

// finite rounds a price, and returns 0 for one that JSON cannot represent.
func finite(price float64) float64 {
	if math.IsNaN(price) || math.IsInf(price, 0) {
		return 0
	}
	return math.Round(price*100) / 100
}
