// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package input reads what shall run from files: Kubernetes manifests, also as Helm renders them, and tables of pods.
// Workloads become the pods that their controllers would create.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// sources are by pod and by claim of a StatefulSet, workloads are the IDs of those whose pods are there, and rows counts the pods of tables by
	// namespace and name.
	sources   map[client.Object]source
	workloads map[string]bool
	rows      map[client.ObjectKey]int
	// added are the objects that each object of the files has become, by ID, and generated counts those whose name is generated.
	added     map[string][]client.Object
	generated int
	// scaled are the workloads that an autoscaler may scale, by ID.
	scaled      map[string]scaled
	autoscalers []*autoscalingv2.HorizontalPodAutoscaler
	// daemons are pods of DaemonSets that are not in the files, one for each, by the ID of the DaemonSet.
	daemons map[string]*corev1.Pod
	// collected are the names of which a note says the same, by its text; texts are those in their order.
	collected map[string][]string
	texts     []string
}

// Read is ReadIn for the namespace default.
func Read(stdin io.Reader, paths ...string) (*Set, error) {
	return ReadIn(metav1.NamespaceDefault, stdin, paths...)
}

// ReadIn reads files, folders (their .yaml, .yml and .json files, sorted) and "-" for the standard input. Objects that name no namespace are in
// the given one. Every document that is wrong is named in the error, with its file and line.
func ReadIn(namespace string, stdin io.Reader, paths ...string) (*Set, error) {
	set := &Set{
		namespace: namespace, Skipped: map[string]int{}, sources: map[client.Object]source{}, workloads: map[string]bool{}, rows: map[client.ObjectKey]int{},
		added: map[string][]client.Object{}, scaled: map[string]scaled{},
		daemons: map[string]*corev1.Pod{}, collected: map[string][]string{},
	}
	var errs []error
	for _, path := range paths {
		if path == "-" {
			errs = append(errs, set.stream("standard input", stdin))
			continue
		}
		files, err := set.filesOf(path)
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
	return set, set.finish()
}

// filesOf returns the manifests of a folder, or the file itself.
func (s *Set) filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
		if build := builders[filepath.Base(name)]; err == nil && build != "" {
			return fmt.Errorf("the folder %s has a %s, so its files are no manifests yet; run: "+build+" | kubectl bizfly plan -f - --namespace %s", filepath.Dir(name),
				filepath.Base(name), filepath.Dir(name), s.namespace)
		}
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

// builders are the commands that make manifests of a folder, by the file that says so.
var builders = map[string]string{
	"kustomization.yaml": "kubectl kustomize %s", "kustomization.yml": "kubectl kustomize %s", "Kustomization": "kubectl kustomize %s",
	"Chart.yaml": "helm template %s",
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

// text reads all of a file, in UTF-8.
func (s *Set) text(name string, from io.Reader) ([]byte, error) {
	if from == nil {
		return nil, fmt.Errorf("%s: there is none", name)
	}
	text, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = s.grow(0, len(text))
	}
	if err == nil {
		text, _, err = transform.Bytes(marked(), text)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return text, nil
}

// stream reads documents that are separated by "---".
func (s *Set) stream(name string, from io.Reader) error {
	text, err := s.text(name, from)
	if err != nil {
		return err
	}
	var errs []error
	start := 1
	var document [][]byte
	read := func(next int) {
		// What stands before the first line with content is no place to look for a fault.
		for len(document) > 0 && len(bytes.TrimSpace(document[0])) == 0 {
			document, start = document[1:], start+1
		}
		text := bytes.Join(document, []byte("\n"))
		if err := errors.Join(s.grow(0, len(text)), s.document(text)); err != nil {
			for _, err := range unjoined(err) {
				errs = append(errs, located(name, start, err))
			}
		}
		document, start = nil, next
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		after, separates := bytes.CutPrefix(line, []byte("---"))
		if after = bytes.TrimSpace(after); !separates || len(after) > 0 && after[0] != '#' && !bytes.HasPrefix(line, []byte("--- ")) {
			document = append(document, line)
			continue
		}
		read(i + 2)
		if len(after) > 0 && after[0] != '#' {
			errs = append(errs, fmt.Errorf("%s:%d: only a comment may follow ---, not %q", name, i+1, after))
		}
	}
	read(0)
	return errors.Join(errs...)
}

// marked decodes what begins with a byte order mark, as files of spreadsheets and of PowerShell do.
func marked() transform.Transformer { return unicode.BOMOverride(transform.Nop) }

// unjoined are the errors that were joined.
func unjoined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// lineInDocument is how the decoder of YAML says where it has failed.
var lineInDocument = regexp.MustCompile(`(?:error converting YAML to JSON: )?yaml: line (\d+): `)

// located says in which file and line an error is: that of the fault where the decoder knows it, else that of the document.
func located(name string, start int, err error) error {
	text := err.Error()
	if at := lineInDocument.FindStringSubmatchIndex(text); at != nil {
		line, _ := strconv.Atoi(text[at[2]:at[3]])
		return fmt.Errorf("%s:%d: %s%s", name, start+line-1, text[:at[0]], text[at[1]:])
	}
	return fmt.Errorf("%s:%d: %w", name, start, err)
}

// document reads one object, or several objects of JSON.
func (s *Set) document(text []byte) error {
	var errs []error
	for _, content := range contents(text) {
		if content.err != nil {
			return s.unreadable(text, content.err)
		}
		if len(content.object) == 0 {
			continue
		}
		errs = append(errs, s.object(&unstructured.Unstructured{Object: content.object}))
	}
	return errors.Join(errs...)
}

// unreadable says why a document is no object: most are a chart's templates, or patches of a kustomization.
func (s *Set) unreadable(text []byte, err error) error {
	var list []any
	switch {
	case bytes.Contains(text, []byte("{{")):
		return fmt.Errorf("it is not YAML of an object: %w; if it is a template of a chart, run: helm template CHART | kubectl bizfly plan -f - --namespace %s",
			err, s.namespace)
	case yaml.Unmarshal(text, &list) == nil:
		return errors.New("it is a list, not an object; write one object, or a List of them, in its place, or leave the file out")
	}
	return fmt.Errorf("it is not YAML of an object: %w", err)
}

// list reads the objects of a list, which may be lists again.
func (s *Set) list(object *unstructured.Unstructured) error {
	list, err := object.ToList()
	if err != nil {
		return fmt.Errorf("it is no list of objects: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if err := s.object(&list.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("item %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// content is one object of a document, or why it cannot be read.
type content struct {
	object map[string]any
	err    error
}

// contents are the objects of a document. Where it begins as JSON does, it may have several, one after the other.
func contents(text []byte) (all []content) {
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("{")) {
		for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
			var raw json.RawMessage
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				return all
			} else if err != nil {
				break // it may be YAML that begins so, too
			}
			next := content{}
			next.err = yaml.Unmarshal(raw, &next.object)
			all = append(all, next)
		}
	}
	whole := content{}
	whole.err = yaml.Unmarshal(text, &whole.object)
	return []content{whole}
}

func (s *Set) object(object *unstructured.Unstructured) error {
	if object.IsList() {
		return s.list(object)
	}
	gvk := object.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return errors.New("it has no apiVersion and kind, so it is no manifest; leave the file out")
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		s.generated++
		object.SetName(fmt.Sprintf("%s%d", object.GetGenerateName(), s.generated))
	}
	where := strings.TrimSuffix(gvk.Kind+" "+object.GetName(), " ")
	if err := rejection(object); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if !scheme.Scheme.Recognizes(gvk) {
		s.skip(where, true)
		return nil
	}
	if object.GetName() == "" {
		return fmt.Errorf("%s: metadata.name is empty; give it a name, by which plan reports it", where)
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if !plannedKinds.Has(gvk.Kind) {
		s.skip(where, gvk.Kind == "CapacityBuffer")
		return nil
	}
	if err := decodeStrictly(object.Object, typed); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return s.replace(where, typed.(client.Object))
}

// rejection is why an API server with the chart's definitions and policy does not take an object; nil where it does.
func rejection(object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	served := servedVersions[gvk.Kind]
	group, _, _ := strings.Cut(lo.FirstOrEmpty(served), "/")
	if len(served) > 0 && !slices.Contains(served, gvk.GroupVersion().String()) &&
		slices.Contains([]string{group, "extensions"}, gvk.Group) {
		return fmt.Errorf("%s is not served any more: write apiVersion: %s", gvk.GroupVersion(), served[0])
	}
	if err := applyDefinition(gvk, object); err != nil {
		return err
	}
	if gvk.GroupVersion().String() == "karpenter.sh/v1" && gvk.Kind == "NodePool" {
		return nodePoolPolicy().apply(object.Object)
	}
	return nil
}

// replace adds an object, in place of one that has the same kind, namespace and name.
func (s *Set) replace(where string, object client.Object) error {
	kind := strings.Fields(where)[0]
	id := idOf(kind, lo.CoalesceOrEmpty(object.GetNamespace(), s.namespace), object.GetName())
	if before, known := s.added[id]; known {
		s.drop(before)
		s.note(fmt.Sprintf("%s is there more than once: the last one counts, as when the files are applied in this order", where))
	}
	count := len(s.Objects)
	err := s.add(where, object)
	s.added[id] = slices.Clone(s.Objects[count:])
	if len(s.added[id]) > 0 && passes(kind, object.GetAnnotations()) {
		s.drop(s.added[id])
		delete(s.scaled, id)
		s.noteOf("hooks are left out that do not run, or end, once it is installed: %s; to count one, remove its annotation", where)
	}
	return err
}

// passes reports whether what a hook of Helm or Argo CD creates is not there, or ends, once all is installed.
func passes(kind string, annotations map[string]string) bool {
	hooks := annotations["helm.sh/hook"] + "," + annotations["argocd.argoproj.io/hook"]
	installed := lo.SomeBy([]string{"install", "upgrade", "Sync"}, func(when string) bool { return strings.Contains(hooks, when) })
	return hooks != "," && (!installed || kind == "Pod" || kind == "Job" || strings.Contains(annotations["helm.sh/hook-delete-policy"], "hook-succeeded"))
}

// drop removes objects.
func (s *Set) drop(objects []client.Object) {
	gone := lo.SliceToMap(objects, func(object client.Object) (client.Object, bool) { return object, true })
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool { return gone[object] })
}

// servedVersions are those in which API servers have the kinds that are planned, the best first. Objects of other groups with the same kind are others'.
var servedVersions = map[string][]string{
	"Deployment": {"apps/v1"}, "ReplicaSet": {"apps/v1"}, "StatefulSet": {"apps/v1"}, "DaemonSet": {"apps/v1"}, "Job": {"batch/v1"}, "CronJob": {"batch/v1"},
	"HorizontalPodAutoscaler": {"autoscaling/v2", "autoscaling/v1"}, "StorageClass": {"storage.k8s.io/v1"}, "PriorityClass": {"scheduling.k8s.io/v1"},
	"RuntimeClass": {"node.k8s.io/v1"}, "NodePool": {"karpenter.sh/v1"}, "NodeClaim": {"karpenter.sh/v1"},
}

// plannedKinds are those that are read; what is wrong in others changes no plan.
var plannedKinds = sets.New("Pod", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "HorizontalPodAutoscaler", "Job", "CronJob",
	"DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Namespace", "LimitRange", "ResourceQuota", "PriorityClass", "RuntimeClass",
	"NodePool", "NodeOverlay", "BizflyNodeClass")

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
