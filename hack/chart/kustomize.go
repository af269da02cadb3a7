// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// folders are the folders of config/ that are written from the chart, by the kinds that are in them; what is in no other is in
// manager.
var folders = map[string][]string{
	"rbac":      {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
	"admission": {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	"manager":   nil,
}

// helmOnly are the lines that mean something to Helm alone.
var helmOnly = regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^ +annotations:\n +helm\.sh/resource-policy: keep\n`)

// writeKustomize writes the folders of config/ that are made from the chart.
func writeKustomize(ctx context.Context, w *workspace) error {
	text, err := w.render(ctx, defaultValues, "--skip-tests")
	if err != nil {
		return err
	}
	files := map[string]map[string]string{}
	for folder := range folders {
		files[folder] = map[string]string{}
	}
	for _, document := range split(text) {
		object := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		files[folderOf(object.GetKind())][fileName(object)] = helmOnly.ReplaceAllString(document, "")
	}
	for folder, contents := range files {
		if err := writeFolder(filepath.Join(w.config, folder), contents); err != nil {
			return err
		}
	}
	return nil
}

func folderOf(kind string) string {
	for folder, kinds := range folders {
		if slices.Contains(kinds, kind) {
			return folder
		}
	}
	return "manager"
}

// fileName is the object's kind, and what its name has beyond the release's full name.
func fileName(object unstructured.Unstructured) string {
	name := strings.ToLower(object.GetKind())
	if suffix, ok := strings.CutPrefix(object.GetName(), chartName+"-"); ok {
		name += "-" + suffix
	}
	return name + ".yaml"
}

// writeFolder replaces the files of a folder.
func writeFolder(dir string, contents map[string]string) error {
	const header = "# Written by make generate from charts/" + chartName + ".\n"
	kustomization := header + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources that every user may read
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		kustomization += "  - " + name + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(header+contents[name]), 0o644); err != nil { //nolint:gosec // the same
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644) //nolint:gosec // the same
}

// compare reports the differences between the objects of kubectl apply -k config/default and of helm install.
func compare(ctx context.Context, w *workspace) error {
	chart, err := w.render(ctx, defaultValues, "--skip-tests")
	if err != nil {
		return err
	}
	kustomized, err := w.kustomize(ctx, filepath.Join(w.config, "default"))
	if err != nil {
		return err
	}
	ofHelm, err := normalized(chart)
	if err != nil {
		return err
	}
	ofKubectl, err := normalized(kustomized)
	if err != nil {
		return err
	}
	// Helm makes the namespace by an argument.
	delete(ofKubectl, "Namespace/"+namespace)
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(ofHelm)) {
		if other, ok := ofKubectl[name]; !ok {
			differences = append(differences, name+" is in the chart and not in config/default")
		} else if !reflect.DeepEqual(ofHelm[name], other) {
			differences = append(differences, fmt.Sprintf("%s differs.\nIn the chart:\n%s\nIn config/default:\n%s", name, text(ofHelm[name]), text(other)))
		}
		delete(ofKubectl, name)
	}
	for _, name := range slices.Sorted(maps.Keys(ofKubectl)) {
		differences = append(differences, name+" is in config/default and not in the chart")
	}
	if len(differences) > 0 {
		return fmt.Errorf("charts/%s and config/default install different objects: run `make generate`\n%s", chartName, strings.Join(differences, "\n"))
	}
	return nil
}

// normalized are the objects by kind and name, without what means something to Helm alone.
func normalized(rendering string) (map[string]map[string]any, error) {
	objects, err := parse(helmOnly.ReplaceAllString(rendering, ""))
	if err != nil {
		return nil, err
	}
	result := map[string]map[string]any{}
	for _, object := range objects {
		result[id(object)] = object.Object
	}
	return result, nil
}

func text(object map[string]any) string {
	out, err := yaml.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
