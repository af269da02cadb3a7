// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestEverything(t *testing.T) { suite.Run(t, "Everything") }

var root = filepath.Join("..", "..")

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).ToNot(HaveOccurred())
	return value
}
