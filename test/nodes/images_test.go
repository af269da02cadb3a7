// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"archive/tar"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

const (
	controllerImage = "karpenter-provider-bizflycloud"
	pauseImage      = "pause"
	registryPort    = "5000" // as the machines' containerd expects it
)

// repository is where an image is in the registry of the suite.
func repository(image string) string {
	return net.JoinHostPort(environment.MachinesHost(), registryPort) + "/" + image
}

// serveImages starts a registry and pushes the pause image and the controller's, as v1 and as v2. No daemon builds them: they have the
// files of the Dockerfile's last stage.
func serveImages() {
	GinkgoHelper()
	tools := filepath.Join(env.Root(), ".cache", "tools")
	log, err := os.Create(filepath.Join(env.Dir(), "logs", "registry.log"))
	Expect(err).NotTo(HaveOccurred())
	registry := exec.CommandContext(context.Background(), filepath.Join(tools, "crane"),
		"registry", "serve", "--address", net.JoinHostPort(environment.MachinesHost(), registryPort))
	registry.Stdout, registry.Stderr = log, log
	registry.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Expect(registry.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(registry.Process.Kill()).To(Succeed())
		_ = registry.Wait()
	})
	Eventually(func(g Gomega) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+repository("")[:len(repository(""))-1]+"/v2/", nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	}).WithTimeout(20 * time.Second).Should(Succeed())

	certificates := "/etc/ssl/certs/ca-certificates.crt"
	push(tools, pauseImage, "v1", map[string]string{"/pause": filepath.Join(env.Root(), ".cache", "node", "bin", "pause")})
	controller := filepath.Join(env.Root(), "bin", controllerImage)
	for _, tag := range []string{"v1", "v2"} {
		push(tools, controllerImage, tag, map[string]string{
			"/" + controllerImage: controller, "/licenses/LICENSE": filepath.Join(env.Root(), "LICENSE"), certificates: certificates, "/" + tag: os.DevNull,
		})
	}
}

// push makes an image of files, which runs the one of its name as 65532, and pushes it.
func push(tools, image, tag string, files map[string]string) {
	GinkgoHelper()
	layer := filepath.Join(GinkgoT().TempDir(), image+".tar")
	file, err := os.Create(layer)
	Expect(err).NotTo(HaveOccurred())
	archive := tar.NewWriter(file)
	for name, source := range files {
		content, err := os.ReadFile(source)
		Expect(err).NotTo(HaveOccurred())
		Expect(archive.WriteHeader(&tar.Header{Name: name[1:], Mode: 0o755, Size: int64(len(content))})).To(Succeed())
		_, err = archive.Write(content)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(archive.Close()).To(Succeed())
	Expect(file.Close()).To(Succeed())
	reference := repository(image) + ":" + tag
	for _, args := range [][]string{
		{"append", "--insecure", "--oci-empty-base", "--new_layer", layer, "--new_tag", reference},
		{"mutate", "--insecure", "--set-platform", "linux/amd64", "--entrypoint", "/" + image, "--user", "65532:65532", "--tag", reference, reference},
	} {
		output, err := exec.CommandContext(ctx, filepath.Join(tools, "crane"), args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
}
