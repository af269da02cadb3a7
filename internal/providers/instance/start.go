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

import (
	"context"
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// Stopped says that somebody stopped the server.
func (i *Instance) Stopped() bool { return i.Status == StatusShutoff }

// Start starts a server of this cluster that was stopped.
func (p *DefaultProvider) Start(ctx context.Context, id string) error {
	server, err := p.Get(ctx, id)
	if err != nil {
		return err
	}
	if !server.Stopped() {
		return nil
	}
	err = p.api.StartServer(ctx, id)
	switch {
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("starting server %s (%s): %w", server.Name, id, err)
	}
	startsTotal.Inc(nil)
	return nil
}
