// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Window is longer than a demo, so that what a panel counts in it is what was counted since the first scrape.
const Window = 5 * time.Minute

// Truth is what the panels must show at the time of a scrape, by title and series, as test/measure/demo writes it.
type Truth struct {
	At     time.Time
	Panels map[string]map[string]float64
}

// Comparison is how a panel is compared with the ground truth.
type Comparison struct {
	// Late is how long the controller may take on a busy machine until it shows what is true. A panel that shows something else is wrong only
	// where the truth was the same for so long. Zero is for what changes all the time: it is compared at the last scrape.
	Late time.Duration `yaml:"late"`
	// Counts is for what counts in the time that is shown: the truth is how much more it is than at the first scrape.
	Counts bool `yaml:"counts"`
	// PerSecond is for a rate of what counts.
	PerSecond bool `yaml:"perSecond"`
	// Share is for the share of "part" in "all", both of which count.
	Share bool `yaml:"share"`
	// Within is the difference that is allowed, and Tolerance a share of the truth that it may be besides.
	Within    float64 `yaml:"within"`
	Tolerance float64 `yaml:"tolerance"`
	// Zero is for what does not happen in a demo: all others must have been another number than zero.
	Zero bool `yaml:"zero"`
	// Why is why there is no truth to compare with.
	Why string `yaml:"why"`
}

// ReadComparisons reads how panels are compared, by title.
func ReadComparisons(file string) (map[string]Comparison, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the comparisons: %w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	comparisons := map[string]Comparison{}
	if err := decoder.Decode(&comparisons); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return comparisons, nil
}

// Compare compares what a panel of a cluster shows with the truth, and reports how often it did. A panel must have shown the truth at one
// scrape at least, which was no zero unless it is one for the complete demo.
func (s *Scrapes) Compare(ctx context.Context, cluster string, panel []Query, how Comparison) (report string, err error) {
	title, truths := panel[0].Panel, s.Truths[cluster]
	compared, others := 0, 0
	for i := range truths {
		expected, rested, known := s.expected(truths, i, title, how)
		due := rested >= how.Late
		switch {
		case how.Why != "" && truths[i].Panels[title] != nil:
			return "", errors.New("it has a ground truth, and a reason why it has none")
		case how.Why != "":
			return how.Why, nil
		case !known, how.Zero && !due, how.Late == 0 && i < len(truths)-1:
			continue
		}
		shown, err := s.shown(ctx, panel, truths[i].At)
		if err != nil {
			return "", err
		}
		switch err := how.compare(expected, shown); {
		case err != nil && due:
			return "", fmt.Errorf("%s after the start: %w", truths[i].At.Sub(s.Start).Round(time.Second), err)
		case err != nil:
			continue
		}
		compared++
		for _, number := range expected {
			if number != 0 {
				others++
				break
			}
		}
	}
	switch {
	case compared == 0:
		return "", errors.New("it never showed the truth, or there is none")
	case (others == 0) != how.Zero:
		return "", fmt.Errorf("of %d comparisons, %d were with another number than zero", compared, others)
	}
	return fmt.Sprintf("compared %d times, %d of them with another number than zero", compared, others), nil
}

// expected is the truth of a scrape, and for how long it has been the same.
func (s *Scrapes) expected(truths []Truth, i int, title string, how Comparison) (numbers map[string]float64, rested time.Duration, known bool) {
	now, known := truths[i].Panels[title]
	if !known {
		return nil, 0, false
	}
	for j := i - 1; j >= 0 && truths[j].Panels[title] != nil && maps.Equal(truths[j].Panels[title], now); j-- {
		rested = truths[i].At.Sub(truths[j].At)
	}
	if !how.Counts && !how.PerSecond && !how.Share {
		return now, rested, true
	}
	counted := map[string]float64{}
	for name, number := range now {
		counted[name] = number - truths[0].Panels[title][name]
		if how.PerSecond {
			counted[name] /= Window.Seconds()
		}
	}
	if how.Share {
		counted = map[string]float64{"": counted["part"] / counted["all"]}
	}
	return counted, rested, true
}

// shown are the numbers of a panel by the names that its legend gives to them.
func (s *Scrapes) shown(ctx context.Context, panel []Query, at time.Time) (map[string]float64, error) {
	numbers := map[string]float64{}
	for _, q := range panel {
		vector, err := s.At(ctx, q.Expr, at)
		if err != nil {
			return nil, err
		}
		for _, sample := range vector {
			if math.IsNaN(sample.F) {
				continue
			}
			numbers[q.Name(sample.Metric)] += sample.F
		}
	}
	return numbers, nil
}

// compare compares series by series; one that is missing is zero. The truth of "" is that of their sum.
func (c Comparison) compare(expected, shown map[string]float64) error {
	if total, only := expected[""]; only && len(expected) == 1 {
		sum := 0.0
		for _, number := range shown {
			sum += number
		}
		expected, shown = map[string]float64{"the sum": total}, map[string]float64{"the sum": sum}
	}
	names := maps.Clone(expected)
	maps.Copy(names, shown)
	var errs []error
	for name := range names {
		within := max(c.Within, 1e-3) + max(c.Tolerance, 1e-6)*math.Abs(expected[name])
		if c.PerSecond {
			within = c.Within/Window.Seconds() + max(c.Tolerance, 1e-6)*math.Abs(expected[name]) + 1e-6
		}
		if math.Abs(expected[name]-shown[name]) > within {
			errs = append(errs, fmt.Errorf("%s is %v, and the panel shows %v", name, expected[name], shown[name]))
		}
	}
	return errors.Join(errs...)
}
