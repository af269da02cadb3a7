// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Query is one expression of a dashboard.
type Query struct {
	// Dashboard, Panel and RefID locate it.
	Dashboard, Panel, RefID string
	// Expr is the query, with the dashboard's variables replaced.
	Expr string
	// Legend is how the panel names a series: text with {{labels}}.
	Legend string
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// Name is what the legend calls a series with these labels.
func (q Query) Name(series labels.Labels) string {
	return label.ReplaceAllStringFunc(strings.TrimPrefix(q.Legend, "__auto"), func(text string) string { return series.Get(label.FindStringSubmatch(text)[1]) })
}

type dashboard struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
	// Templating are the variables.
	Templating struct {
		List []struct {
			Name string `json:"name"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	Title   string  `json:"title"`
	Panels  []panel `json:"panels"`
	Targets []struct {
		RefID  string `json:"refId"`
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

// Variables are what a user has chosen: one cluster, its job, and a window that suits a run of a minute or two.
func Variables(cluster, window string) map[string]string {
	return map[string]string{
		"__rate_interval": window, "__range": "5m", "__interval": "15s", "cluster": cluster, "job": target["job"], "nodepool": ".*", "datasource": "",
	}
}

var variable = regexp.MustCompile(`\$\{?([A-Za-z_]+)\}?`)

// Queries returns the expressions of all dashboards in the folder with the variables. A panel without one, or with a
// variable that the dashboard does not have, is an error.
func Queries(dir string, variables map[string]string) ([]Query, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no dashboards in %s: %w", dir, err)
	}
	var queries []Query
	uids := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a dashboard: %w", err)
		}
		d := dashboard{}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if d.UID == "" || d.Title == "" || uids[d.UID] != "" || len(d.UID) > 40 {
			return nil, fmt.Errorf("%s needs a title and a uid of its own of at most 40 characters", file)
		}
		uids[d.UID] = file
		known := map[string]string{}
		for name, value := range variables {
			if strings.HasPrefix(name, "__") {
				known[name] = value
			}
		}
		for _, v := range d.Templating.List {
			value, ok := variables[v.Name]
			if !ok {
				return nil, fmt.Errorf("%s has a variable %s that nobody chooses", file, v.Name)
			}
			known[v.Name] = value
		}
		of, err := d.queries(filepath.Base(file), d.Panels, known)
		if err != nil {
			return nil, err
		}
		queries = append(queries, of...)
	}
	return queries, nil
}

func (d *dashboard) queries(file string, panels []panel, known map[string]string) ([]Query, error) {
	var queries []Query
	for _, p := range panels {
		inner, err := d.queries(file, p.Panels, known)
		if err != nil {
			return nil, err
		}
		queries = append(queries, inner...)
		if len(p.Targets) == 0 && len(p.Panels) == 0 {
			return nil, fmt.Errorf("%s: panel %q asks nothing", file, p.Title)
		}
		for _, t := range p.Targets {
			var unknown []string
			expr := variable.ReplaceAllStringFunc(t.Expr, func(text string) string {
				name := variable.FindStringSubmatch(text)[1]
				value, ok := known[name]
				if !ok {
					unknown = append(unknown, name)
				}
				return value
			})
			if len(unknown) > 0 {
				return nil, fmt.Errorf("%s: panel %q uses unknown variables: %s", file, p.Title, strings.Join(unknown, ", "))
			}
			queries = append(queries, Query{Dashboard: file, Panel: p.Title, RefID: t.RefID, Expr: expr, Legend: t.Legend})
		}
	}
	return queries, nil
}
