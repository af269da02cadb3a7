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

// Package corefaults cures from outside what is wrong in Karpenter core v1.14.1. Each file names the fault, and goes away
// with the first core that does not have it. What cannot be cured from outside is in docs/known-issues.md.
package corefaults

import (
	"context"
	"fmt"
	"sync"
	"time"

	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
)

// The fault (kubernetes-sigs/karpenter issue 3176, fixed in v1.14.3): after creating a NodeClaim the provisioner writes
// it into the cluster state by hand. A claim that was refused and deleted in the meantime, and whose deletion the state
// has seen already, is in there for ever as a claim that has not been launched, and core schedules nothing while there
// is one, until it is restarted. The cure: remember which claims core has created, and take those out of the state that
// do not exist.

const (
	// settled is how long core may take between creating a claim and writing it into its state.
	settled = 15 * time.Second
	// staleClaimInterval is how often the claims that have no server yet are looked at.
	staleClaimInterval = 10 * time.Second
)

var staleClaimsTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
	Namespace: "karpenter", Subsystem: "bizfly", Name: "stale_claims_removed_total",
	Help: "NodeClaims that did not exist any more and were taken out of core's cluster state, where they kept it from scheduling (kubernetes-sigs/karpenter issue 3176).",
}, nil)

// A counter that first appears with its first count hides that count from every rate.
func init() { staleClaimsTotal.Add(0, nil) }

// ClaimMemory is a client that remembers which NodeClaims it has created, until they have a server or are gone. It is
// the client that core's controllers get.
type ClaimMemory struct {
	client.Client
	clock clock.Clock

	mu      sync.Mutex
	created map[string]time.Time
}

// NewClaimMemory makes a client over another.
func NewClaimMemory(kubeClient client.Client, clk clock.Clock) *ClaimMemory {
	return &ClaimMemory{Client: kubeClient, clock: clk, created: map[string]time.Time{}}
}

// Create creates an object, and remembers it when it is a NodeClaim.
func (m *ClaimMemory) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := m.Client.Create(ctx, object, options...)
	if claim, ok := object.(*karpv1.NodeClaim); ok && err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.created[claim.Name] = m.clock.Now()
	}
	return err
}

// old returns the claims that were created so long ago that core has written them into its state.
func (m *ClaimMemory) old() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, at := range m.created {
		if m.clock.Since(at) >= settled {
			names = append(names, name)
		}
	}
	return names
}

func (m *ClaimMemory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.created, name)
}

// StaleClaims takes claims that do not exist out of core's cluster state.
type StaleClaims struct {
	memory    *ClaimMemory
	apiReader client.Reader
	cluster   *state.Cluster
}

// NewStaleClaims makes the controller. The reader must not be a cache: it decides that a claim does not exist.
func NewStaleClaims(memory *ClaimMemory, apiReader client.Reader, cluster *state.Cluster) *StaleClaims {
	return &StaleClaims{memory: memory, apiReader: apiReader, cluster: cluster}
}

// Name is the controller's name, which core's controllers must not share.
func (c *StaleClaims) Name() string { return "corefaults.staleclaims.bizflycloud" }

// Reconcile looks at every claim that core has created and that has no server yet.
func (c *StaleClaims) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	for _, name := range c.memory.old() {
		claim := &karpv1.NodeClaim{}
		err := c.memory.Get(ctx, client.ObjectKey{Name: name}, claim)
		if apierrors.IsNotFound(err) {
			err = c.apiReader.Get(ctx, client.ObjectKey{Name: name}, claim)
		}
		switch {
		case apierrors.IsNotFound(err):
			c.remove(ctx, name)
		case err != nil:
			return reconciler.Result{}, fmt.Errorf("reading NodeClaim %s: %w", name, err)
		case claim.Status.ProviderID != "":
			c.memory.forget(name)
		}
	}
	return reconciler.Result{RequeueAfter: staleClaimInterval}, nil
}

// remove takes a claim out of the state; where it is not in there nothing happens.
func (c *StaleClaims) remove(ctx context.Context, name string) {
	if c.cluster.NodeClaimExists(name) {
		c.cluster.DeleteNodeClaim(name)
		staleClaimsTotal.Inc(nil)
		log.FromContext(ctx).Info("took a NodeClaim that does not exist out of the cluster state", "NodeClaim", name)
	}
	c.memory.forget(name)
}

// Register adds the controller to the manager; only the leader runs it, as only the leader creates claims.
func (c *StaleClaims) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
