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

// Package apis carries the generated custom resource definitions, so that tests and tools install exactly what users do.
package apis

import (
	_ "embed"

	"github.com/awslabs/operatorpkg/object"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
)

//go:generate make -C ../.. generate

//go:embed crds/karpenter.bizflycloud.vn_bizflynodeclasses.yaml
var bizflyNodeClassCRD []byte

//go:embed crds/karpenter.bizflycloud.vn_providerconfigs.yaml
var providerConfigCRD []byte

// CRDs are this provider's custom resource definitions followed by Karpenter core's.
var CRDs = append([]*apiextensionsv1.CustomResourceDefinition{
	object.Unmarshal[apiextensionsv1.CustomResourceDefinition](bizflyNodeClassCRD),
	object.Unmarshal[apiextensionsv1.CustomResourceDefinition](providerConfigCRD),
}, karpapis.CRDs...)
