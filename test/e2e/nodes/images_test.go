// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const controllerImage = "karpenter-provider-bizflycloud"

// pushController pushes the controller's image with a tag, which is also a file in it, so that no two images are the same. It has the
// files of the Dockerfile's last stage.
func pushController(tag string) {
	GinkgoHelper()
	Expect(env.PushImage(ctx, controllerImage, tag, map[string]string{
		"/" + controllerImage: filepath.Join(env.Root(), "bin", controllerImage), "/licenses/LICENSE": filepath.Join(env.Root(), "LICENSE"),
		"/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt", "/" + tag: os.DevNull,
	})).To(Succeed())
}
