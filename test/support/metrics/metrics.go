// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics reads samples of metrics: those of a registry of this process, and those that another one
// answers.
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Sample is one series of a family: its labels and its value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Gather returns the samples of a family; the value of a histogram is how often it was observed.
func Gather(from prometheus.Gatherer, name string) ([]Sample, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	var samples []Sample
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			sample := Sample{Labels: map[string]string{}}
			for _, label := range metric.GetLabel() {
				sample.Labels[label.GetName()] = label.GetValue()
			}
			sample.Value = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
				float64(metric.GetHistogram().GetSampleCount())
			samples = append(samples, sample)
		}
	}
	return samples, nil
}

var (
	line  = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$`)
	label = regexp.MustCompile(`([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"`)
	// unescape is for what the text format escapes in the value of a label.
	unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

// Read returns the samples of a family in Prometheus's text format.
func Read(text io.Reader, name string) ([]Sample, error) {
	var samples []Sample
	for lines := bufio.NewScanner(text); ; {
		if !lines.Scan() {
			return samples, lines.Err()
		}
		if !strings.HasPrefix(lines.Text(), name) {
			continue
		}
		match := line.FindStringSubmatch(lines.Text())
		if match == nil {
			return nil, fmt.Errorf("%q is no sample", lines.Text())
		}
		if match[1] != name {
			continue
		}
		value, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no sample: %w", lines.Text(), err)
		}
		sample := Sample{Labels: map[string]string{}, Value: value}
		for _, found := range label.FindAllStringSubmatch(match[2], -1) {
			sample.Labels[found[1]] = unescape.Replace(found[2])
		}
		samples = append(samples, sample)
	}
}
