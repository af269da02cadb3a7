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

package environment

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Helm runs Helm against the environment's API server and returns what it printed. HELM names the binary; without it, it
// is the one that `make helm` builds.
func (e *Environment) Helm(ctx context.Context, args ...string) (string, error) {
	path := os.Getenv("HELM")
	if path == "" {
		path = filepath.Join(e.root, ".cache", "tools", "helm")
	}
	command := exec.CommandContext(ctx, path, args...) //nolint:gosec // a binary of ours
	command.Dir = e.root
	command.Env = append(baseEnv(), "KUBECONFIG="+e.kubeconfig,
		// Nothing of the user's own Helm, nor anything left of the last run.
		"HELM_CACHE_HOME="+filepath.Join(e.dir, "helm", "cache"), "HELM_CONFIG_HOME="+filepath.Join(e.dir, "helm", "config"),
		"HELM_DATA_HOME="+filepath.Join(e.dir, "helm", "data"))
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("helm %v: %w\n%s", args, err, output.String())
	}
	return output.String(), nil
}

// Root is the folder of the repository.
func (e *Environment) Root() string { return e.root }
