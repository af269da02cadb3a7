// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"golang.org/x/text/transform"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// columns are those that a table of pods may have.
var columns = []string{"name", "namespace", "count", "cpu", "memory", "gpu", "zone", "category"}

// csv reads a table of pods, whose first line names the columns; name, cpu and memory are required.
func (s *Set) csv(name string, from io.Reader) error {
	reader := csv.NewReader(transform.NewReader(from, marked()))
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: reading the line that names the columns: %w", name, err)
	}
	for i := range header {
		header[i] = strings.ToLower(strings.TrimSpace(header[i]))
	}
	if unknown, _ := lo.Difference(header, columns); len(unknown) > 0 {
		return fmt.Errorf("%s: unknown column %q, use %s, with commas between them", name, unknown[0], strings.Join(columns, ", "))
	}
	if missing, _ := lo.Difference([]string{"name", "cpu", "memory"}, header); len(missing) > 0 {
		return fmt.Errorf("%s: the column %q is missing", name, missing[0])
	}
	var errs []error
	for line := 2; ; line++ {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(errs...)
		}
		if err == nil {
			err = s.row(lo.SliceToMap(lo.Range(len(row)), func(i int) (string, string) { return header[i], strings.TrimSpace(row[i]) }))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: line %d: %w", name, line, err))
		}
	}
}

// row adds the pods of one line.
func (s *Set) row(values map[string]string) error {
	requests, selector := corev1.ResourceList{}, map[string]string{}
	for column, resourceName := range map[string]corev1.ResourceName{"cpu": corev1.ResourceCPU, "memory": corev1.ResourceMemory,
		"gpu": v1alpha1.ResourceNVIDIAGPU} {
		if values[column] == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(values[column])
		if err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("%s %q is no quantity, use for example 500m or 2Gi", column, values[column])
		}
		requests[resourceName] = quantity
	}
	for column, label := range map[string]string{"zone": corev1.LabelTopologyZone, "category": v1alpha1.LabelInstanceCategory} {
		if values[column] != "" {
			selector[label] = values[column]
		}
	}
	count := 1
	if values["count"] != "" {
		var err error
		if count, err = strconv.Atoi(values["count"]); err != nil || count < 0 {
			return fmt.Errorf("count %q is no number of pods", values["count"])
		}
	}
	limits := corev1.ResourceList{}
	if quantity, ok := requests[v1alpha1.ResourceNVIDIAGPU]; ok {
		limits[v1alpha1.ResourceNVIDIAGPU] = quantity
	}
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: values["name"], Namespace: values["namespace"]}}
	if slices.Contains([]string{"", "-"}, owner.Name) {
		return errors.New("the name is missing")
	}
	s.inNamespace(owner)
	key := client.ObjectKeyFromObject(owner)
	first := s.rows[key]
	s.rows[key] += count
	return s.replicas(owner, kindOfRow, first, lo.ToPtr(int32(min(count, maxObjects+1))), &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": owner.Name}},
		Spec: corev1.PodSpec{NodeSelector: selector, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}, nil)
}
