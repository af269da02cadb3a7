// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
)

// priceMetric is the controller's own word on what an offering costs.
const priceMetric = "karpenter_cloudprovider_instance_type_offering_price_estimate"

// offering is a flavor in a zone.
type offering struct{ flavor, zone string }

// readPrices reads VND per hour by offering from the controller's metrics.
func readPrices(ctx context.Context, url string) (map[offering]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the prices: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for the prices: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	samples, err := metrics.Read(response.Body, priceMetric)
	if err != nil {
		return nil, fmt.Errorf("reading the prices: %w", err)
	}
	prices := map[offering]float64{}
	for _, sample := range samples {
		flavor := cmp.Or(sample.Labels["instance_type"], sample.Labels["flavor"])
		prices[offering{flavor: flavor, zone: sample.Labels["zone"]}] = sample.Value
	}
	return prices, nil
}

// vnd writes an amount with separators, for example 12,345 VND.
func vnd(amount float64) string {
	digits := fmt.Sprintf("%.0f", amount)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return strings.TrimSpace(digits) + " VND"
}
