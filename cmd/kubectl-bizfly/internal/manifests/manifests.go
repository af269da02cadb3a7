// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads what shall run from files: Kubernetes manifests, also as Helm renders them, and tables of pods.
// Workloads become the pods that their controllers would create.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// Set is what was read.
type Set struct {
	// Objects are those that scheduling depends on, pods of workloads included, with the defaults of their definitions.
	Objects []client.Object
	// Skipped counts by kind the objects that scheduling does not depend on.
	Skipped map[string]int
	// Notes are what was assumed, and what was left out.
	Notes []string

	// bytes is how much was read and made.
	bytes int
	// namespace is that of objects which name none.
	namespace string
	// sources are by pod, workloads are the IDs of those whose pods are there, and rows counts the pods of tables by namespace and name.
	sources   map[client.Object]source
	workloads map[string]bool
	rows      map[client.ObjectKey]int
}

// Read is ReadIn for the namespace default.
func Read(stdin io.Reader, paths ...string) (*Set, error) {
	return ReadIn(metav1.NamespaceDefault, stdin, paths...)
}

// ReadIn reads files, folders (their .yaml, .yml and .json files, sorted) and "-" for the standard input. Objects that name no namespace are in
// the given one. Every document that is wrong is named in the error, with its file and its number.
func ReadIn(namespace string, stdin io.Reader, paths ...string) (*Set, error) {
	set := &Set{
		namespace: namespace, Skipped: map[string]int{}, sources: map[client.Object]source{}, workloads: map[string]bool{}, rows: map[client.ObjectKey]int{},
	}
	var errs []error
	for _, path := range paths {
		if path == "-" {
			errs = append(errs, set.stream("standard input", stdin))
			continue
		}
		files, err := filesOf(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, file := range files {
			errs = append(errs, set.file(file))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	set.finish()
	return set, nil
}

// filesOf returns the manifests of a folder, or the file itself.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			files = append(files, name)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder %s has no .yaml, .yml or .json file", path)
	}
	return files, err
}

func (s *Set) file(path string) error {
	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	defer func() { _ = file.Close() }()
	if filepath.Ext(path) == ".csv" {
		return s.csv(path, file)
	}
	return s.stream(path, file)
}

// stream reads documents that are separated by "---".
func (s *Set) stream(name string, from io.Reader) error {
	if from == nil {
		return fmt.Errorf("%s: there is none", name)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(from))
	var errs []error
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("%s: document %d: %w", name, number, err))...)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		if err := errors.Join(s.grow(0, len(document)), s.document(document)); err != nil {
			errs = append(errs, fmt.Errorf("%s: document %d: %w", name, number, err))
		}
	}
}

func (s *Set) document(text []byte) error {
	content := map[string]any{}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return fmt.Errorf("it is not YAML of an object: %w", err)
	}
	if len(content) == 0 {
		return nil
	}
	object := &unstructured.Unstructured{Object: content}
	if object.IsList() {
		list, err := object.ToList()
		if err != nil {
			return fmt.Errorf("it is no list of objects: %w", err)
		}
		for i := range list.Items {
			if err := s.object(&list.Items[i]); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	}
	return s.object(object)
}

func (s *Set) object(object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return errors.New("it has no apiVersion and kind")
	}
	where := strings.TrimSuffix(gvk.Kind+" "+object.GetName(), " ")
	if err := applyDefinition(gvk, object); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if !scheme.Scheme.Recognizes(gvk) {
		s.skip(gvk.Kind, true)
		return nil
	}
	if object.GetName() == "" && object.GetGenerateName() == "" {
		return fmt.Errorf("%s: metadata.name is empty; give it a name, by which plan reports it", where)
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return s.add(where, typed.(client.Object))
}

// definition is the schema of a custom resource.
type definition struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
}

var definitions = parseDefinitions()

func parseDefinitions() map[runtimeschema.GroupVersionKind]definition {
	all := map[runtimeschema.GroupVersionKind]definition{}
	for _, crd := range apis.CRDs {
		for _, version := range crd.Spec.Versions {
			internal := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
				panic(err) // no build that passed its tests has one
			}
			structural, err := schema.NewStructural(internal)
			if err != nil {
				panic(err)
			}
			validator, _, err := validation.NewSchemaValidator(internal)
			if err != nil {
				panic(err)
			}
			all[runtimeschema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] = definition{structural, validator}
		}
	}
	return all
}

// applyDefinition does with a custom resource what the API server does: it fills in the defaults and validates.
func applyDefinition(gvk runtimeschema.GroupVersionKind, object *unstructured.Unstructured) error {
	known, ok := definitions[gvk]
	if !ok {
		return nil
	}
	defaulting.Default(object.Object, known.structural)
	return validation.ValidateCustomResource(nil, object.Object, known.validator).ToAggregate()
}

// Default fills the defaults of the definition of a custom resource into an object.
func Default(object client.Object) error {
	gvks, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	if known, ok := definitions[gvks[0]]; ok {
		defaulting.Default(content, known.structural)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, object)
}

// Pods returns the pods of the set.
func (s *Set) Pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.Objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
