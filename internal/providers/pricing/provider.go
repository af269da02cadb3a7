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

package pricing

import (
	"sync"
	"sync/atomic"
)

// DefaultProvider prices with a table that can be replaced while it runs.
type DefaultProvider struct {
	mu      sync.Mutex
	current atomic.Pointer[version]
}

// version is immutable.
type version struct {
	seq   uint64
	table *Table
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider prices with the table, for example DefaultTable(). The table must have passed ParseTable.
func NewDefaultProvider(table *Table) *DefaultProvider {
	p := &DefaultProvider{}
	p.current.Store(&version{seq: 1, table: table})
	return p
}

// Price returns VND per hour.
func (p *DefaultProvider) Price(item Item) (float64, bool) { return p.current.Load().table.price(item) }

// SeqNum changes with every table.
func (p *DefaultProvider) SeqNum() uint64 { return p.current.Load().seq }

// SetTable prices with another table from now on. The table must have passed ParseTable and not be changed any more.
func (p *DefaultProvider) SetTable(table *Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.Store(&version{seq: p.current.Load().seq + 1, table: table})
}
