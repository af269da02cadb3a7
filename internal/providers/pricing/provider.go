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

// DefaultProvider prices with the active table.
type DefaultProvider struct{ table func() *Table }

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider prices with the table that the function returns, for example DefaultTable. It must have passed
// ParseTable and not be changed any more.
func NewDefaultProvider(table func() *Table) *DefaultProvider { return &DefaultProvider{table: table} }

// Price returns VND per hour.
func (p *DefaultProvider) Price(item Item) (float64, bool) { return p.table().price(item) }

// SeqNum is different for each parsed table.
func (p *DefaultProvider) SeqNum() uint64 { return p.table().seq }
