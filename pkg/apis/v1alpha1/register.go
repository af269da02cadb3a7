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

// Package v1alpha1 holds the custom resources of this provider, and the labels, annotations and metadata keys that it
// writes on Kubernetes objects and on servers.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.bizflycloud.vn
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Group is the API group of this provider's custom resources and the domain of its labels and annotations.
const Group = "karpenter.bizflycloud.vn"

// GroupVersion is the version of this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, GroupVersion)
	s.AddKnownTypes(GroupVersion, &BizflyNodeClass{}, &BizflyNodeClassList{}, &ProviderConfig{}, &ProviderConfigList{})
	return nil
}

func init() {
	// Karpenter core looks NodeClass kinds up in client-go's global scheme and panics when they are not there.
	if err := AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
}
