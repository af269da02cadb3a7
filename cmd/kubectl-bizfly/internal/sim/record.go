// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/go-logr/logr/funcr"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
)

// record keeps what core says meanwhile.
type record struct {
	mu    sync.Mutex
	notes []string
	// inVain are the NodeClaims that core has looked at since the last command and cannot consolidate.
	inVain []string
}

// Publish implements events.Recorder. What core decides is in the result.
func (r *record) Publish(events ...karpevents.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range events {
		claim, ok := event.InvolvedObject.(*karpv1.NodeClaim)
		if ok && event.Reason == karpevents.Unconsolidatable &&
			claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable).IsTrue() {
			r.inVain = append(r.inVain, claim.Name)
		}
	}
}

// takeInVain returns the NodeClaims in vain since it was last called.
func (r *record) takeInVain() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.inVain
	r.inVain = nil
	return names
}

// note keeps a line once.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := fmt.Sprintf(format, args...); !lo.Contains(r.notes, line) {
		r.notes = append(r.notes, line)
	}
}

// reportedElsewhere are errors that the result has in other words: pods without a place with their reason, and NodePools
// that are left out.
var reportedElsewhere = []any{"could not schedule pod", "failed getting volume topology requirements",
	"ignoring nodepool, not ready"}

// recorded is a context of whose log only errors are kept: one of a core controller becomes a line of the result, with
// the values that say of what it is.
func (s *Simulation) recorded(ctx context.Context) context.Context {
	return log.IntoContext(ctx, funcr.NewJSON(func(line string) {
		entry := map[string]any{}
		if json.Unmarshal([]byte(line), &entry) != nil {
			entry["msg"] = line
		}
		if of, err := json.Marshal(lo.OmitByKeys(entry, []string{"logger", "msg", "error"})); err == nil &&
			!lo.Contains(reportedElsewhere, entry["msg"]) {
			s.note("Karpenter reports an error: %v: %v; %s", entry["msg"], entry["error"], of)
		}
	}, funcr.Options{Verbosity: -1}))
}
