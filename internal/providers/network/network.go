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

// Package network finds the VPC networks, firewalls and SSH keys of a NodeClass.
package network

import (
	"context"
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Network is a resolved VPC network.
type Network struct {
	// ID is the network's id.
	ID string
	// Name is the network's name.
	Name string
	// Zones are the zones in which servers can have a port in it; empty when the API does not say.
	Zones []string
	// InternetGateway is true when the network has one.
	InternetGateway bool
}

// Firewall is a resolved firewall.
type Firewall struct {
	// ID is the firewall's id.
	ID string
	// Name is the firewall's name.
	Name string
}

// NotFoundError says that the cloud answered and has nothing that the selector term matches.
type NotFoundError struct {
	// Field is the path of the field that asked, for example spec.networkSelectorTerms[0].name.
	Field string
	// Value is what was asked for.
	Value string
	// Available is what there is instead, shortened.
	Available []string
	// Remedy is what to do about it where a list of names does not say it; may be empty.
	Remedy string
}

// Error names the field, the value, what is available and the remedy.
func (e *NotFoundError) Error() string {
	message := fmt.Sprintf("%s: nothing matches %q; available: %v", e.Field, e.Value, e.Available)
	if e.Remedy != "" {
		message += "; " + e.Remedy
	}
	return message
}

// Provider finds what servers are attached to. Answers are cached for a short while; a *NotFoundError says that
// something does not exist, any other error that it could not be found out.
type Provider interface {
	// Networks returns the VPC networks, in the order of the selector terms and without repetition. Without terms it
	// is the BKE cluster's own network or, without BKE, the project's default one.
	Networks(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Network, error)
	// Firewalls returns the firewalls, sorted by id.
	Firewalls(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Firewall, error)
	// SSHKey returns the name of the key, empty when the NodeClass selects none.
	SSHKey(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (string, error)
}
