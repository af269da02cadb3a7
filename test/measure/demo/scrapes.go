// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// scrapeInterval is short, so that even a demo has enough of them for rates.
const scrapeInterval = 3 * time.Second

// scrapeLimit bounds what a controller can make us keep of one answer.
const scrapeLimit = 32 << 20

// scraper keeps the metrics of the controller, as a Prometheus would, in one file per time:
// <milliseconds since 1970>.prom, and beside it, <milliseconds since 1970>.json, the ground truth of that time.
// test/e2e/monitoring asks dashboards and alerts of it.
type scraper struct {
	dir   string
	url   string
	truth truth
	kept  int
	err   error
	ended chan struct{}
}

// truth returns what the panels of the dashboards must show.
type truth func(context.Context) (map[string]numbers, error)

// scrape keeps scrapes in dir until the returned function is called, which reports what went wrong. An empty dir keeps none.
func scrape(ctx context.Context, dir, url string, truth truth) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the folder of scrapes: %w", err)
	}
	earlier, err := filepath.Glob(filepath.Join(dir, "*.[pj]*"))
	if err != nil {
		return nil, fmt.Errorf("looking for earlier scrapes: %w", err)
	}
	for _, file := range earlier {
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("removing an earlier scrape: %w", err)
		}
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	s := &scraper{dir: dir, url: url, truth: truth, ended: make(chan struct{})}
	go s.run(ctx)
	return func() error {
		cancel()
		<-s.ended
		// The last scrape is younger than everything that the demo has done.
		if err := s.once(context.WithoutCancel(outer)); err != nil {
			s.err = err
		} else {
			s.kept++
		}
		if s.kept < 2 {
			return fmt.Errorf("only %d scrapes of %s: %w", s.kept, url, errors.Join(s.err, errors.New("too few for a rate")))
		}
		return nil
	}, nil
}

// trouble lets the cloud reject a create request and fail a read, once each: what never happens has no series.
func trouble(ctx context.Context, sandbox *environment.Sandbox) error {
	rules := []map[string]any{
		{"method": http.MethodPost, "path": "/servers", "effect": cloud.EffectNoCapacity, "count": 1},
		{"method": http.MethodGet, "path": "/servers", "effect": cloud.EffectStatus, "status": http.StatusServiceUnavailable, "skip": 3, "count": 1},
	}
	if err := sandbox.Call(ctx, http.MethodPost, "faults", map[string]any{"seed": 1, "rules": rules}, nil); err != nil {
		return fmt.Errorf("arranging trouble: %w", err)
	}
	return nil
}

func (s *scraper) run(ctx context.Context) {
	defer close(s.ended)
	ticker := time.NewTicker(scrapeInterval)
	defer ticker.Stop()
	for {
		if err := s.once(ctx); err != nil {
			s.err = err
		} else {
			s.kept++
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *scraper) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeInterval)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	at := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, scrapeLimit))
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading metrics (status %d): %w", response.StatusCode, err)
	}
	panels, err := s.truth(ctx)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(panels)
	if err != nil {
		return fmt.Errorf("encoding the ground truth: %w", err)
	}
	file := filepath.Join(s.dir, strconv.FormatInt(at.UnixMilli(), 10))
	return errors.Join(os.WriteFile(file+".prom", text, 0o600), os.WriteFile(file+".json", encoded, 0o600))
}
