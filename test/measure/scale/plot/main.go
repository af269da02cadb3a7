// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plot draws the plots of docs/contribute/benchmarks.md from the results of `make bench WHAT=scale`, and those of
// docs/concepts/cost.md from the results of `make bench WHAT=bill`.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// result is what of a result is drawn.
type result struct {
	Provider string  `json:"provider"`
	Scenario string  `json:"scenario"`
	Phase    string  `json:"phase"`
	Nodes    int     `json:"nodes"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu"`
	RSS      float64 `json:"rss"`
}

// Colors that are told apart on white and on black, also by those who see few of them.
var (
	text   = color.NRGBA{R: 0x80, G: 0x88, B: 0x92, A: 0xff}
	series = map[string]color.Color{
		"kwok":             color.NRGBA{R: 0x8a, G: 0x8f, B: 0x98, A: 0xff},
		"bizfly":           color.NRGBA{R: 0x1f, G: 0x8e, B: 0xf1, A: 0xff},
		"bizfly-unlimited": color.NRGBA{R: 0xe6, G: 0x7e, B: 0x22, A: 0xff},
		"bizfly-realistic": color.NRGBA{R: 0x2c, G: 0xa0, B: 0x5a, A: 0xff},
	}
	names = []string{"kwok", "bizfly", "bizfly-unlimited", "bizfly-realistic"}
)

func main() {
	drawings := map[string]func(file, folder string) error{"scale": run, "bill": drawBill}
	if len(os.Args) != 4 || drawings[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: plot scale|bill RESULTS.json FOLDER")
		os.Exit(2)
	}
	if err := drawings[os.Args[1]](os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, folder string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var results []result
	if err := json.Unmarshal(content, &results); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, phase := range []struct{ name, title, per string }{
		{"up", "up, one pod per node", ""}, {"down", "down to no nodes", ""}, {"rest", "at rest", " a minute"},
	} {
		for _, quantity := range []struct {
			name, title string
			of          func(result) float64
		}{
			{"time", "seconds", func(r result) float64 { return r.Seconds }},
			{"cpu", "CPU seconds of the controller" + phase.per, func(r result) float64 {
				if r.Phase == "rest" {
					return r.CPU / r.Seconds * 60
				}
				return r.CPU
			}},
			{"memory", "peak RSS of the controller (MiB)", func(r result) float64 { return r.RSS }},
		} {
			if phase.name == "rest" && quantity.name == "time" {
				continue
			}
			values := map[string]map[int][]float64{}
			for _, r := range results {
				if r.Scenario != "up" || r.Phase != phase.name {
					continue
				}
				if values[r.Provider] == nil {
					values[r.Provider] = map[int][]float64{}
				}
				values[r.Provider][r.Nodes] = append(values[r.Provider][r.Nodes], quantity.of(r))
			}
			if len(values) == 0 {
				continue
			}
			file := filepath.Join(folder, fmt.Sprintf("scale-%s-%s.svg", phase.name, quantity.name))
			if err := paint(file, phase.title, quantity.title, values); err != nil {
				return fmt.Errorf("drawing %s: %w", file, err)
			}
		}
	}
	return nil
}

// spread is the median of each size, with the lowest and the highest as the error bar.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

func paint(file, title, quantity string, values map[string]map[int][]float64) error {
	p := newPlot(title, "nodes", quantity)
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Left = true
	for i, name := range names {
		of := values[name]
		if of == nil {
			continue
		}
		var points spread
		for _, nodes := range sorted(of) {
			all := slices.Sorted(slices.Values(of[nodes]))
			median := (all[(len(all)-1)/2] + all[len(all)/2]) / 2
			points.XYs = append(points.XYs, plotter.XY{X: float64(nodes), Y: median})
			points.YErrors = append(points.YErrors, struct{ Low, High float64 }{median - all[0], all[len(all)-1] - median})
		}
		line, dots, err := plotter.NewLinePoints(points.XYs)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, bars.Color = series[name], series[name], series[name]
		line.Width, dots.Radius, dots.Shape = vg.Points(2), vg.Points(3), plotutil.Shape(i)
		p.Add(line, dots, bars)
		p.Legend.Add(name, line, dots)
	}
	return save(p, file)
}

// newPlot makes an empty plot that is read on white and on black.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle} {
		style.Color = text
	}
	p.Legend.TextStyle.Color, p.Legend.Top = text, true
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color = text, text, text
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.NRGBA{R: 0x80, G: 0x88, B: 0x92, A: 0x40}, color.NRGBA{R: 0x80, G: 0x88, B: 0x92, A: 0x40}
	p.Add(grid)
	return p
}

func save(p *plot.Plot, file string) error {
	canvas := vgsvg.New(16*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, svg.Bytes(), 0o644)
}

func sorted(of map[int][]float64) []int {
	keys := make([]int, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
