// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"

var (
	lastReadFailed = metrics.Gauge("karpenter_bizfly_catalog_last_read_failed",
		"1 while the last read of a part of the catalog ended with an error and its last good content is served, else 0. By "+
			"part.", metrics.Label("part"))
	sequence = metrics.Gauge("karpenter_bizfly_catalog_sequence",
		"Number of the catalog's content, raised by one whenever it changes; 0 until it was read for the first time.")
	age = metrics.Gauge("karpenter_bizfly_catalog_age_seconds",
		"Time since the complete catalog of the cloud was last read without an error, or since the controller started, at "+
			"the end of the last read.")
)

func init() {
	sequence.Set(0, nil)
	age.Set(0, nil)
}
