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

package config

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// PendingServers keeps the servers that no NodeClaim accounts for in the status of the ProviderConfig: beside the scope in
// which they are, without which nothing can be ordered, and with no more rights than that needs.
type PendingServers struct {
	kubeClient client.Client
	reader     client.Reader
}

// NewPendingServers returns the record. The reader must not be a cache: what is not on record is forgotten for good.
func NewPendingServers(kubeClient client.Client, reader client.Reader) *PendingServers {
	return &PendingServers{kubeClient: kubeClient, reader: reader}
}

// Read returns the record by the servers' names; an empty one where there is no ProviderConfig.
func (p *PendingServers) Read(ctx context.Context) (map[string]v1alpha1.PendingServer, error) {
	object := &v1alpha1.ProviderConfig{}
	err := p.reader.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading status.pendingServers of ProviderConfig %s: %w", v1alpha1.ProviderConfigName, err)
	}
	return object.Status.PendingServers, nil
}

// Write changes entries; nil removes one. Each entry is patched by itself and without a lock, so that a leader that
// finishes late takes nothing back and the other parts of the status are left alone.
func (p *PendingServers) Write(ctx context.Context, changes map[string]*v1alpha1.PendingServer) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"pendingServers": changes}})
	if err != nil {
		return fmt.Errorf("encoding status.pendingServers: %w", err)
	}
	object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
	if err := p.kubeClient.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing status.pendingServers of ProviderConfig %s: %w", v1alpha1.ProviderConfigName, err)
	}
	return nil
}
