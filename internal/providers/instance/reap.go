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
	"errors"
	"fmt"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

// Reap carries on what Launch and Delete began and nobody polls. All of it is judged by the same two lists.
func (p *DefaultProvider) Reap(ctx context.Context) error {
	if p.config.ClusterUID == "" {
		return errNoClusterUID
	}
	v := p.newView()
	var errs []error
	for _, open := range p.deletions.open() {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		var err error
		switch {
		case open.ID != "":
			err = p.advance(ctx, v, DeleteRequest{ID: open.ID})
		case !p.config.Clock.Now().Before(open.NotBefore):
			err = p.sweep(ctx, open.Name, v)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweep deletes the root disk that an order left behind without a server: it is free and has the name that we made of
// the UIDs for that order alone. Where there is a server of ours by that name, its deletion takes the disk; what is
// attached to somebody else's of that name is not free.
func (p *DefaultProvider) sweep(ctx context.Context, name string, v *view) error {
	servers, err := v.servers(ctx)
	if err != nil {
		return fmt.Errorf("listing servers to find what order %s left: %w", name, err)
	}
	if lo.SomeBy(servers, func(server *gobizfly.Server) bool { return server.Name == name && p.ours(server) && !gone(server) }) {
		return nil
	}
	_, err = p.removeLeftovers(ctx, v, record{Name: name})
	return err
}
