// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plot draws the plots of docs/concepts/cost.md from the results of `make bench WHAT=bill`.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// text is a color that is read on white and on black.
var text = color.NRGBA{R: 0x80, G: 0x88, B: 0x92, A: 0xff}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot RESULTS.json FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bill is what of the results is drawn.
type bill struct {
	Settle []workload `json:"settle"`
	Day    []workload `json:"day"`
}

type workload struct {
	Name    string  `json:"name"`
	Pods    float64 `json:"pods"`
	Bound   float64 `json:"bound"`
	Packing float64 `json:"packing"`
	Ways    map[string]struct {
		VND        float64 `json:"vnd"`
		VNDPerHour float64 `json:"vnd_per_hour"`
		VNDByHours float64 `json:"vnd_by_hours"`
		Evictions  float64 `json:"evictions"`
	} `json:"ways"`
}

// ways are drawn in this order.
var ways = []struct {
	name  string
	color color.Color
}{
	{"underutilized-30s", color.NRGBA{R: 0x1f, G: 0x8e, B: 0xf1, A: 0xff}},
	{"underutilized-10m", color.NRGBA{R: 0x6f, G: 0x5b, B: 0xd6, A: 0xff}},
	{"balanced-30s", color.NRGBA{R: 0x2c, G: 0xa0, B: 0x5a, A: 0xff}},
	{"balanced-10m", color.NRGBA{R: 0x12, G: 0x9c, B: 0x9c, A: 0xff}},
	{"empty-30s", color.NRGBA{R: 0xe6, G: 0x7e, B: 0x22, A: 0xff}},
	{"suggested", color.NRGBA{R: 0xd4, G: 0x3a, B: 0x3a, A: 0xff}},
	{"repacked", color.NRGBA{R: 0xd9, G: 0xa4, B: 0x1d, A: 0xff}},
	{"pool-best", color.NRGBA{R: 0xc0, G: 0x50, B: 0x70, A: 0xff}},
	{"pool-8c_16g", color.NRGBA{R: 0x8a, G: 0x8f, B: 0x98, A: 0xff}},
}

func run(file, folder string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var results bill
	if err := json.Unmarshal(content, &results); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	settle := newPlot("settled: times the bound", "", "bill / bound")
	var names []string
	for _, w := range results.Settle {
		names = append(names, w.Name)
	}
	settle.NominalX(names...)
	settle.X.Min, settle.X.Max, settle.Y.Min = -0.5, float64(len(names))+2, 1
	settle.X.Tick.Label.Rotation, settle.X.Tick.Label.XAlign, settle.X.Tick.Label.YAlign = math.Pi/7, draw.XRight, draw.YCenter
	for i, way := range ways {
		var points plotter.XYs
		for n, w := range results.Settle {
			points = append(points, plotter.XY{X: float64(n) + 0.1*float64(i-len(ways)/2), Y: w.Ways[way.name].VNDPerHour / w.Bound})
		}
		if err := addPoints(settle, way.name, points, way.color, i); err != nil {
			return err
		}
	}
	var packed plotter.XYs
	for n, w := range results.Settle {
		packed = append(packed, plotter.XY{X: float64(n), Y: w.Packing / w.Bound})
	}
	if err := addPoints(settle, "best packing", packed, text, len(ways)); err != nil {
		return err
	}
	addLegend(settle)
	if err := save(settle, filepath.Join(folder, "cost-settle.svg")); err != nil {
		return err
	}

	day := newPlot("days: bill and evictions, one point per workload", "evictions per pod", "bill / bound")
	day.X.Min, day.Y.Min = 0, 1
	for i, way := range ways {
		var points plotter.XYs
		for _, w := range results.Day {
			points = append(points, plotter.XY{X: w.Ways[way.name].Evictions / w.Pods, Y: w.Ways[way.name].VND / w.Bound})
		}
		if err := addPoints(day, way.name, points, way.color, i); err != nil {
			return err
		}
	}
	day.X.Max *= 1.5 // for the legend
	addLegend(day)
	if err := save(day, filepath.Join(folder, "cost-day.svg")); err != nil {
		return err
	}
	return drawHours(results.Day, filepath.Join(folder, "cost-hours.svg"))
}

// drawHours draws the bill of all days by policy: billed by the second, by started hours, and by these with billingPeriod.
func drawHours(days []workload, file string) error {
	p := newPlot("all days: bill in thousand VND", "", "")
	policies := []string{"underutilized-30s", "balanced-30s", "balanced-5m", "balanced-10m", "empty-30s", "pool-best"}
	p.NominalX(policies...)
	p.X.Min, p.X.Max, p.X.Tick.Label.Font.Size = -0.6, float64(len(policies))-0.4, vg.Points(8)
	p.Y.Min, p.Y.Max = 0, 1300 // the legend is above the bars
	for i, series := range []struct {
		title, suffix string
		byHours       bool
		color         color.Color
	}{
		{"billed by the second", "", false, ways[0].color},
		{"billed by started hours", "", true, ways[5].color},
		{"by started hours, with billingPeriod 1h", "-1h", true, ways[2].color},
	} {
		values := make(plotter.Values, len(policies))
		for n, policy := range policies {
			for _, w := range days {
				way := w.Ways[policy+series.suffix] // a pool has no billingPeriod, and so no third bar
				if series.byHours {
					values[n] += way.VNDByHours / 1000
				} else {
					values[n] += way.VND / 1000
				}
			}
		}
		bars, err := plotter.NewBarChart(values, vg.Points(16))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = series.color, 0, vg.Points(float64(17*(i-1)))
		p.Add(bars)
		p.Legend.Add(series.title, bars)
	}
	p.Legend.Left, p.Legend.Padding = true, vg.Points(2)
	return save(p, file)
}

// addLegend puts it where no points are: its texts begin at one line, because browsers draw them wider than they are measured here.
func addLegend(p *plot.Plot) {
	p.Legend.Left, p.Legend.XOffs, p.Legend.TextStyle.Font.Size = true, vg.Points(285), vg.Points(8)
}

func addPoints(p *plot.Plot, name string, points plotter.XYs, of color.Color, shape int) error {
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	dots.Color, dots.Radius, dots.Shape = of, vg.Points(3.5), plotutil.Shape(shape)
	p.Add(dots)
	p.Legend.Add(name, dots)
	return nil
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
