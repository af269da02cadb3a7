// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// embeddedCatalog is the catalog with which the kubectl plugin plans without credentials: what the sandbox answers for the region HN, in the
// API's own form. The page of flavors has the same flavors.
func embeddedCatalog() (string, error) {
	c := cloud.DefaultCatalog()
	region, _ := lo.Find(c.Regions, func(r cloud.Region) bool { return r.ShortName == cloud.RegionHN })
	encoded, err := json.MarshalIndent(map[string]any{
		"region": region, "flavors": c.Flavors[cloud.RegionHN], "volume_types": c.VolumeTypes[cloud.RegionHN],
	}, "", " ")
	return string(encoded), err
}
