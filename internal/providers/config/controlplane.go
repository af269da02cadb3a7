// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ErrNoAPIServers says that the API servers publish no address, so that a clone of the cluster cannot be told from the
// original.
var ErrNoAPIServers = errors.New("the API servers publish no address in the EndpointSlice default/kubernetes")

// ErrAPIServersChanging says that an API server has joined those that are recorded, too recently to be recorded itself.
var ErrAPIServersChanging = errors.New("an API server has joined those that are recorded less than a minute ago")

// ControlPlaneChangedError says that none of the API servers that are recorded runs any more.
type ControlPlaneChangedError struct {
	// Recorded and Found are the addresses of the API servers that the ProviderConfig records, and now.
	Recorded, Found []string
}

// Error says what it may mean, and how to confirm that it means something else.
func (e *ControlPlaneChangedError) Error() string {
	return fmt.Sprintf("none of the recorded API servers is left, so this cluster may be a clone: no server is launched, "+
		"deleted or rebooted. If the original is gone, confirm it: kubectl annotate providerconfig %s %s-. Recorded: %s; "+
		"now: %s",
		v1alpha1.ProviderConfigName, v1alpha1.AnnotationAPIServers, strings.Join(e.Recorded, ", "),
		strings.Join(e.Found, ", "))
}

// APIServers returns the addresses of the API servers, sorted. Each API server writes its own into this EndpointSlice
// and takes out those of servers that have ended, so that it differs between a cluster and its clone, although both
// come from one etcd snapshot; and no pod reaches an API server that is not in it.
func (p *DefaultProvider) APIServers(ctx context.Context) ([]string, error) {
	slice := &discoveryv1.EndpointSlice{}
	name := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := p.options.Reader.Get(ctx, name, slice); err != nil {
		return nil, fmt.Errorf("%w: reading it: %w", ErrNoAPIServers, err)
	}
	port := ""
	if len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
		port = fmt.Sprintf(":%d", *slice.Ports[0].Port)
	}
	found := lo.FlatMap(slice.Endpoints, func(e discoveryv1.Endpoint, _ int) []string {
		return lo.Map(e.Addresses, func(address string, _ int) string {
			return lo.Ternary(strings.Contains(address, ":"), "["+address+"]", address) + port
		})
	})
	if len(found) == 0 {
		return nil, ErrNoAPIServers
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// CheckControlPlane returns nil when this is the cluster that the ProviderConfig was written in, as far as its API
// servers show: garbage collection may then delete. Where none was ever recorded there is nothing to compare with.
func (p *DefaultProvider) CheckControlPlane(ctx context.Context) error {
	object, err := p.read(ctx)
	if err != nil || len(object.RecordedAPIServers()) == 0 {
		return err
	}
	found, err := p.APIServers(ctx)
	if err != nil {
		return err
	}
	return CompareAPIServers(object.RecordedAPIServers(), found)
}

// CompareAPIServers returns nil when all that were found are recorded, ErrAPIServersChanging when some are, and a
// ControlPlaneChangedError when none is.
func CompareAPIServers(recorded, found []string) error {
	switch {
	case lo.Every(recorded, found):
		return nil
	case lo.Some(recorded, found):
		return ErrAPIServersChanging
	}
	return &ControlPlaneChangedError{Recorded: recorded, Found: found}
}
