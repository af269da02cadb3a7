// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis carries the generated custom resource definitions, so that tests and tools install exactly what users
// do.
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
