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

package bizfly

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/bizflycloud/gobizfly"
)

// Guard is an API whose servers and volumes can only be reached while the scope in which they were made is confirmed.
// A token of another project, region or host answers 404 to everything that we own, and that must never look like
// "gone": until somebody who knows has confirmed the scope, each of these calls is an error.
type Guard struct {
	API

	confirmed atomic.Pointer[Scope]
}

var _ API = (*Guard)(nil)

// NewGuard returns an API that is closed until Confirm.
func NewGuard(api API) *Guard { return &Guard{API: api} }

// Confirm opens the API for exactly this scope.
func (g *Guard) Confirm(scope Scope) { g.confirmed.Store(&scope) }

// Withdraw closes the API.
func (g *Guard) Withdraw() { g.confirmed.Store(nil) }

// Confirmed returns the scope for which the API is open, and false while it is closed.
func (g *Guard) Confirmed() (Scope, bool) {
	if scope := g.confirmed.Load(); scope != nil {
		return *scope, true
	}
	return Scope{}, false
}

func (g *Guard) check(ctx context.Context, operation string) error {
	confirmed, ok := g.Confirmed()
	if !ok {
		return &APIError{Operation: operation, Class: ClassAuth, NotSent: true,
			Message: "no configuration is in force: see the conditions of the ProviderConfig named default"}
	}
	scope, err := g.Scope(ctx)
	if err != nil {
		return err
	}
	if scope != confirmed {
		return &APIError{Operation: operation, Class: ClassAuth, NotSent: true, Message: fmt.Sprintf(
			"the credentials belong to %s, but the servers of this cluster are in %s: see the conditions of the ProviderConfig named default", scope, confirmed)}
	}
	return nil
}

// String is for messages.
func (s Scope) String() string {
	return fmt.Sprintf("project %s in region %s at %s", s.ProjectID, s.Region, s.Host)
}

// ListServers is ServerAPI's, within the confirmed scope.
func (g *Guard) ListServers(ctx context.Context) ([]*gobizfly.Server, error) {
	if err := g.check(ctx, "ListServers"); err != nil {
		return nil, err
	}
	return g.API.ListServers(ctx)
}

// GetServer is ServerAPI's, within the confirmed scope.
func (g *Guard) GetServer(ctx context.Context, id string) (*gobizfly.Server, error) {
	if err := g.check(ctx, "GetServer"); err != nil {
		return nil, err
	}
	return g.API.GetServer(ctx, id)
}

// GetServerMetadata is ServerAPI's, within the confirmed scope.
func (g *Guard) GetServerMetadata(ctx context.Context, id string) (map[string]string, error) {
	if err := g.check(ctx, "GetServerMetadata"); err != nil {
		return nil, err
	}
	return g.API.GetServerMetadata(ctx, id)
}

// CreateServer is ServerAPI's, within the confirmed scope.
func (g *Guard) CreateServer(ctx context.Context, request *gobizfly.ServerCreateRequest) (string, error) {
	if err := g.check(ctx, "CreateServer"); err != nil {
		return "", err
	}
	return g.API.CreateServer(ctx, request)
}

// DeleteServer is ServerAPI's, within the confirmed scope.
func (g *Guard) DeleteServer(ctx context.Context, id string, volumeIDs []string) (string, error) {
	if err := g.check(ctx, "DeleteServer"); err != nil {
		return "", err
	}
	return g.API.DeleteServer(ctx, id, volumeIDs)
}

// GetTask is ServerAPI's, within the confirmed scope.
func (g *Guard) GetTask(ctx context.Context, id string) (*Task, error) {
	if err := g.check(ctx, "GetTask"); err != nil {
		return nil, err
	}
	return g.API.GetTask(ctx, id)
}

// ListVolumes is ServerAPI's, within the confirmed scope.
func (g *Guard) ListVolumes(ctx context.Context) ([]*gobizfly.Volume, error) {
	if err := g.check(ctx, "ListVolumes"); err != nil {
		return nil, err
	}
	return g.API.ListVolumes(ctx)
}

// DeleteVolume is ServerAPI's, within the confirmed scope.
func (g *Guard) DeleteVolume(ctx context.Context, id string) error {
	if err := g.check(ctx, "DeleteVolume"); err != nil {
		return err
	}
	return g.API.DeleteVolume(ctx, id)
}
