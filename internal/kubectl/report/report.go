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

// Package report writes HTML reports that need no network: styles and plots are part of the one file, and it is readable on a
// light and on a dark screen.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"image/color"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/top"
)

//go:embed report.html.tmpl
var page string

var parsed = template.Must(template.New("report").Funcs(template.FuncMap{
	"vnd": output.VND, "percent": output.Percent, "plural": output.Plural, "month": func(vndPerHour float64) float64 { return vndPerHour * plan.HoursPerMonth },
	"used": func(used map[corev1.ResourceName]float64, name string) float64 {
		return used[corev1.ResourceName(name)]
	},
	"name": func(p *plan.Plan) string { return lo.CoalesceOrEmpty(p.Name, "plan") },
}).Parse(page))

// Colours that differ in lightness too, so that they can be distinguished without colour.
var (
	blue   = color.RGBA{R: 0x1f, G: 0x6f, B: 0xb4, A: 0xff}
	orange = color.RGBA{R: 0xf2, G: 0x9e, B: 0x38, A: 0xff}
)

// data is what the page shows.
type data struct {
	Plans             []*plan.Plan
	Cluster           *top.Cluster
	Cost, Utilisation template.HTML
}

// Write writes the report of plans.
func Write(to io.Writer, plans []*plan.Plan) error {
	cost, err := costPlot(plans)
	if err != nil {
		return fmt.Errorf("drawing the cost: %w", err)
	}
	utilisation, err := utilisationPlot(plans)
	if err != nil {
		return fmt.Errorf("drawing the utilisation: %w", err)
	}
	return parsed.ExecuteTemplate(to, "plan", data{Plans: plans, Cost: cost, Utilisation: utilisation})
}

// WriteTop writes the report of the nodes that run now, with plots by NodePool.
func WriteTop(to io.Writer, cluster *top.Cluster) error {
	if len(cluster.Nodes) == 0 {
		return parsed.ExecuteTemplate(to, "top", data{Cluster: cluster})
	}
	byPool := lo.GroupBy(cluster.Nodes, func(n top.Node) string { return lo.CoalesceOrEmpty(n.NodePool, "worker pools") })
	names := lo.Uniq(lo.Map(cluster.Nodes, func(n top.Node, _ int) string { return lo.CoalesceOrEmpty(n.NodePool, "worker pools") }))
	values := func(of func(nodes []top.Node) float64) plotter.Values {
		return lo.Map(names, func(name string, _ int) float64 { return of(byPool[name]) })
	}
	cost, err := bars("million VND per month", names, map[string]plotter.Values{"": values(func(nodes []top.Node) float64 {
		return lo.SumBy(nodes, func(n top.Node) float64 { return n.VNDPerHour }) * plan.HoursPerMonth / 1e6
	})}, 0)
	if err != nil {
		return fmt.Errorf("drawing the cost: %w", err)
	}
	utilisation, err := bars("requested, % of allocatable", names, map[string]plotter.Values{
		"CPU": values(func(nodes []top.Node) float64 {
			return lo.MeanBy(nodes, func(n top.Node) float64 { return n.CPU * 100 })
		}),
		"memory": values(func(nodes []top.Node) float64 {
			return lo.MeanBy(nodes, func(n top.Node) float64 { return n.Memory * 100 })
		}),
	}, 100)
	if err != nil {
		return fmt.Errorf("drawing the utilisation: %w", err)
	}
	return parsed.ExecuteTemplate(to, "top", data{Cluster: cluster, Cost: cost, Utilisation: utilisation})
}

// costPlot draws VND per month of today and of each plan, in millions.
func costPlot(plans []*plan.Plan) (template.HTML, error) {
	var values plotter.Values
	var names []string
	if len(plans) > 0 && plans[0].Today != nil && plans[0].Today.Nodes > 0 {
		values, names = append(values, plans[0].Today.VNDPerMonth/1e6), append(names, "today")
	}
	for _, p := range plans {
		values, names = append(values, p.VNDPerMonth/1e6), append(names, lo.CoalesceOrEmpty(p.Name, "plan"))
	}
	return bars("million VND per month", names, map[string]plotter.Values{"": values}, 0)
}

// utilisationPlot draws the mean part of CPU and memory that is requested.
func utilisationPlot(plans []*plan.Plan) (template.HTML, error) {
	of := func(name corev1.ResourceName) plotter.Values {
		return lo.Map(plans, func(p *plan.Plan, _ int) float64 { return p.Used(name) * 100 })
	}
	names := lo.Map(plans, func(p *plan.Plan, _ int) string { return lo.CoalesceOrEmpty(p.Name, "plan") })
	return bars("requested, % of allocatable", names, map[string]plotter.Values{"CPU": of(corev1.ResourceCPU), "memory": of(corev1.ResourceMemory)}, 100)
}

// bars draws one or two series of bars.
func bars(title string, names []string, series map[string]plotter.Values, most float64) (template.HTML, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.Y.Label.Text = title
	p.Y.Min = 0
	if most > 0 {
		p.Y.Max = most
	}
	width := vg.Points(24)
	for i, label := range lo.Filter([]string{"", "CPU", "memory"}, func(l string, _ int) bool { _, ok := series[l]; return ok }) {
		chart, err := plotter.NewBarChart(series[label], width)
		if err != nil {
			return "", err
		}
		chart.Color, chart.LineStyle.Width = []color.Color{blue, orange}[i], 0
		if len(series) > 1 {
			chart.Offset = width * vg.Length(2*i-1) / 2
			p.Legend.Add(label, chart)
		}
		p.Add(chart)
	}
	p.Legend.Top = true
	p.NominalX(names...)
	return svg(p)
}

var (
	header     = regexp.MustCompile(`(?s)^.*?<svg`)
	namespaces = regexp.MustCompile(`\s+xmlns(:xlink)?=("[^"]*"|'[^']*')`)
)

// svg draws a plot as an element of the page.
func svg(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(16*vg.Centimeter, 8*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// The declaration of the document belongs to a file of its own, and names of namespaces to XML.
	text := header.ReplaceAllString(b.String(), "<svg role=\"img\"")
	text = namespaces.ReplaceAllString(text, "")
	return template.HTML(text), nil //nolint:gosec // drawn above; the texts in it are escaped by the canvas
}
