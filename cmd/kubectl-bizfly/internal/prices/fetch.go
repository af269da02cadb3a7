// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package prices

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultURL is where the list was in 2021.
	DefaultURL = "https://billing.bizflycloud.vn/api/v4/plans"
	// pageSize and maxPages bound what is read: a price list of thousands of lines would be something else.
	pageSize = 100
	maxPages = 50
	maxBody  = 8 << 20
	timeout  = 20 * time.Second
)

// Fetch reads all plans of a price list. The request holds no credential, token or cookie, and follows no redirect.
func Fetch(ctx context.Context, from string) ([]json.RawMessage, error) {
	target, err := url.Parse(from)
	if err != nil || target.Host == "" || (target.Scheme != "https" && target.Scheme != "http") {
		return nil, fmt.Errorf("%q is no URL of a price list", from)
	}
	target.User = nil
	client := &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var all []json.RawMessage
	var before []byte
	for page := 1; page <= maxPages; page++ {
		target.RawQuery = url.Values{
			"embedded": {`["product","unit_prices"]`}, "limit": {strconv.Itoa(pageSize)}, "page": {strconv.Itoa(page)},
		}.Encode()
		body, err := get(ctx, client, target.String())
		if err != nil {
			return nil, err
		}
		plans, err := Plans(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		// A service that does not know pages answers with the same list again.
		if bytes.Equal(body, before) {
			return all, nil
		}
		all, before = append(all, plans...), body
		if len(plans) < pageSize {
			return all, nil
		}
	}
	return nil, fmt.Errorf("%s has more than %d pages", from, maxPages)
}

func get(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the price list: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the price list does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the price list broke off: %w", err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the price list answers %s: %s", response.Status, shortened(strings.Join(strings.Fields(string(body)), " ")))
	case len(body) > maxBody:
		return nil, fmt.Errorf("the price list is larger than %d MiB", maxBody>>20)
	}
	return body, nil
}
