// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring asks Prometheus's own engine what the chart's dashboards and alerts make of the scrapes of a real run.
// It is a module of its own, because Prometheus brings the libraries of many clouds.
package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// The clusters whose controllers one Prometheus scrapes. Both have the run of the demo, Late a third of it later, so that
// a query that mixes them gives other numbers.
const (
	Cluster = "a"
	Late    = "b"
)

// target is what a ServiceMonitor adds to each series; the label cluster comes from relabeling.
var target = map[string]string{
	"job": "karpenter-provider-bizflycloud", "namespace": "karpenter", "pod": "karpenter-0", "instance": "127.0.0.1:8080",
}

// Scrapes is what a Prometheus would hold after a run.
type Scrapes struct {
	// Start and End are the first and the last scrape of Cluster.
	Start, End time.Time
	// Names are the names of all series.
	Names map[string]bool
	// Truths are the ground truth of each scrape of a cluster, oldest first.
	Truths map[string][]Truth

	// last are the series of the latest scrape of each cluster.
	last   map[string]map[string]labels.Labels
	db     *tsdb.DB
	engine *promql.Engine
}

// Load reads the scrapes that test/measure/demo has kept, <milliseconds since 1970>.prom, into a database in dbDir.
func Load(dir, dbDir string) (*Scrapes, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil {
		return nil, fmt.Errorf("looking for scrapes: %w", err)
	}
	if len(files) < 2 {
		return nil, fmt.Errorf("%d scrapes in %s: run `make demo` first", len(files), dir)
	}
	options := tsdb.DefaultOptions()
	options.RetentionDuration = 0
	db, err := tsdb.Open(dbDir, nil, nil, options, nil)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	s := &Scrapes{db: db, Names: map[string]bool{}, Truths: map[string][]Truth{}, last: map[string]map[string]labels.Labels{},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
		})}
	var times []int64
	for _, file := range files {
		at, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".prom"), 10, 64)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s is not named by its time: %w", file, err), s.Close())
		}
		times = append(times, at)
	}
	slices.Sort(times)
	s.Start, s.End = time.UnixMilli(times[0]), time.UnixMilli(times[len(times)-1])
	for cluster, later := range map[string]int64{Cluster: 0, Late: times[len(times)/3] - times[0]} {
		for _, at := range times {
			if err := s.read(dir, cluster, at, at+later); err != nil {
				return nil, errors.Join(fmt.Errorf("reading the scrape of %d: %w", at, err), s.Close())
			}
		}
	}
	return s, nil
}

// read adds the scrape of one time as if it were of another.
func (s *Scrapes) read(dir, cluster string, of, at int64) error {
	file := filepath.Join(dir, strconv.FormatInt(of, 10))
	text, err := os.ReadFile(file + ".prom")
	if err != nil {
		return fmt.Errorf("reading a scrape: %w", err)
	}
	if err := s.append(at, cluster, text); err != nil {
		return err
	}
	text, err = os.ReadFile(file + ".json")
	if err != nil {
		return fmt.Errorf("reading the ground truth: %w", err)
	}
	truth := Truth{At: time.UnixMilli(at)}
	if err := json.Unmarshal(text, &truth.Panels); err != nil {
		return fmt.Errorf("reading the ground truth: %w", err)
	}
	s.Truths[cluster] = append(s.Truths[cluster], truth)
	return nil
}

// Close closes the database.
func (s *Scrapes) Close() error { return errors.Join(s.engine.Close(), s.db.Close()) }

// append adds one scrape, as Prometheus does: with the labels of the target, up, and an end of what is not there any more.
func (s *Scrapes) append(at int64, cluster string, text []byte) error {
	parsed, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{FallbackContentType: "text/plain"})
	if err != nil {
		return fmt.Errorf("parsing: %w", err)
	}
	app := s.db.Appender(context.Background())
	ended := s.last[cluster]
	s.last[cluster] = map[string]labels.Labels{}
	for {
		entry, err := parsed.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("parsing: %w", err), app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		parsed.Labels(&series)
		_, _, number := parsed.Series()
		s.Names[series.Get(labels.MetricName)] = true
		if err := s.add(app, series, cluster, at, number); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	if err := s.add(app, labels.FromStrings(labels.MetricName, "up"), cluster, at, 1); err != nil {
		return errors.Join(err, app.Rollback())
	}
	for key, series := range ended {
		if _, there := s.last[cluster][key]; there {
			continue
		}
		if _, err := app.Append(0, series, at, math.Float64frombits(value.StaleNaN)); err != nil {
			return errors.Join(fmt.Errorf("ending %s: %w", series, err), app.Rollback())
		}
	}
	return app.Commit()
}

func (s *Scrapes) add(app storage.Appender, series labels.Labels, cluster string, at int64, number float64) error {
	builder := labels.NewBuilder(series).Set("cluster", cluster)
	for name, of := range target {
		if had := series.Get(name); had != "" {
			builder.Set("exported_"+name, had)
		}
		builder.Set(name, of)
	}
	series = builder.Labels()
	s.last[cluster][series.String()] = series
	if _, err := app.Append(0, series, at, number); err != nil {
		return fmt.Errorf("adding %s: %w", series, err)
	}
	return nil
}

// Range evaluates an expression over the complete run.
func (s *Scrapes) Range(ctx context.Context, expr string) (promql.Matrix, error) {
	query, err := s.engine.NewRangeQuery(ctx, s.db, nil, expr, s.Start, s.End, 3*time.Second)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	matrix, err := query.Exec(ctx).Matrix()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return matrix, nil
}

// At evaluates an expression at one moment.
func (s *Scrapes) At(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	query, err := s.engine.NewInstantQuery(ctx, s.db, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, err := query.Exec(ctx).Vector()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return vector, nil
}

// Points evaluates an expression over the complete run, and returns how many numbers came out.
func (s *Scrapes) Points(ctx context.Context, expr string) (int, error) {
	matrix, err := s.Range(ctx, expr)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, series := range matrix {
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) {
				count++
			}
		}
	}
	return count, nil
}

// Operands are the parts of an alert's expression that must have data while all is well: what a comparison compares, what
// must not be absent, each side of a conjunction.
func Operands(expr parser.Expr) []parser.Expr {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return Operands(e.Expr)
	case *parser.StepInvariantExpr:
		return Operands(e.Expr)
	case *parser.NumberLiteral:
		return nil
	case *parser.AggregateExpr:
		if inner, ok := unparen(e.Expr).(*parser.BinaryExpr); ok && (inner.Op.IsComparisonOperator() || inner.Op.IsSetOperator()) {
			return Operands(inner)
		}
	case *parser.Call:
		if e.Func.Name == "absent" {
			return Operands(e.Args[0])
		}
	case *parser.BinaryExpr:
		// Of alternatives one is enough; what is for an absence has two sides of its own.
		if call, ok := unparen(e.RHS).(*parser.Call); e.Op == parser.LOR && (!ok || call.Func.Name != "absent") {
			return []parser.Expr{expr}
		}
		if e.Op.IsComparisonOperator() || e.Op.IsSetOperator() {
			return append(Operands(e.LHS), Operands(e.RHS)...)
		}
	}
	return []parser.Expr{expr}
}

func unparen(expr parser.Expr) parser.Expr {
	for {
		inner, ok := expr.(*parser.ParenExpr)
		if !ok {
			return expr
		}
		expr = inner.Expr
	}
}

// MetricsOf are the names of the metrics that an expression reads.
func MetricsOf(expr string) ([]string, error) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var names []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names, nil
}
