// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// registryPort is where the machines' containerd expects the registry (test/support/realnode/image.sh).
const registryPort = "5000"

// Registry is where machines pull images from. They also find there what registry.k8s.io has, which is the pause image alone.
func Registry() string { return net.JoinHostPort(MachinesHost(), registryPort) }

// startRegistry starts a registry and pushes the pause image, of which machines make every pod. It does nothing where there are no machines.
func (e *Environment) startRegistry(ctx context.Context) error {
	if !e.options.Machines {
		return nil
	}
	if _, err := e.launch(command{
		name: "registry", path: e.crane(), args: []string{"registry", "serve", "--address", Registry()}, env: baseEnv(), log: e.logPath("registry"),
	}, e.fail); err != nil {
		return err
	}
	if err := e.await(ctx, "registry", 20*time.Second, func(ctx context.Context) (bool, error) {
		return answers(ctx, http.DefaultClient, "http://"+Registry()+"/v2/"), nil
	}); err != nil {
		return err
	}
	return e.PushImage(ctx, "pause", "3.10", map[string]string{"/pause": filepath.Join(e.root, ".cache", "node", "bin", "pause")})
}

func (e *Environment) crane() string { return filepath.Join(e.root, ".cache", "tools", "crane") }

// PushImage pushes an image of files, by their paths in it, which runs the one of the image's name as 65532. No daemon builds it.
func (e *Environment) PushImage(ctx context.Context, image, tag string, files map[string]string) error {
	layer := filepath.Join(e.dir, image+".tar")
	if err := writeLayer(layer, files); err != nil {
		return fmt.Errorf("writing the layer of image %s: %w", image, err)
	}
	reference := Registry() + "/" + image + ":" + tag
	for _, args := range [][]string{
		{"append", "--insecure", "--oci-empty-base", "--new_layer", layer, "--new_tag", reference},
		{"mutate", "--insecure", "--set-platform", "linux/amd64", "--entrypoint", "/" + image, "--user", "65532:65532", "--tag", reference, reference},
	} {
		if output, err := exec.CommandContext(ctx, e.crane(), args...).CombinedOutput(); err != nil { //nolint:gosec // a binary of ours
			return fmt.Errorf("pushing image %s: %w\n%s", reference, err, output)
		}
	}
	return nil
}

func writeLayer(path string, files map[string]string) (err error) {
	file, err := os.Create(path) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := tar.NewWriter(file)
	for name, source := range files {
		content, err := os.ReadFile(source) //nolint:gosec // what we have built
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: name[1:], Mode: 0o755, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
