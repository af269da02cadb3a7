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

// Package bench measures what core asks of the provider all the time: instance types, drift, the list of servers, the
// choice of an offering, garbage collection, and core's own scheduler with our instance types. `make bench` runs it in
// rounds and holds ratios and allocations to their bounds (hack/benchcheck); nothing here promises a time.
package bench
