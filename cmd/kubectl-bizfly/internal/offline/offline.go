// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package offline is BizFly Cloud for users without credentials: a catalog that is built into the plugin. Its prices are those of the
// price table, which is built in as well.
package offline

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// content is written by make generate from the sandbox's catalog.
//
//go:embed catalog.json
var content []byte

// API answers what the catalog provider reads. Nothing else is known without an account: every other call is a defect and panics.
type API struct {
	bizfly.API
	catalog
}

type catalog struct {
	Region      gobizfly.Region                  `json:"region"`
	Flavors     []*gobizfly.ServerFlavorResponse `json:"flavors"`
	VolumeTypes []*gobizfly.VolumeType           `json:"volume_types"`
}

// NewAPI reads the embedded catalog.
func NewAPI() *API {
	api := &API{}
	lo.Must0(json.Unmarshal(content, &api.catalog), "no build that passed its tests has another")
	return api
}

// Scope implements bizfly.API.
func (a *API) Scope(context.Context) (bizfly.Scope, error) {
	return bizfly.Scope{Region: a.Region.RegionName}, nil
}

// ListRegions implements bizfly.API.
func (a *API) ListRegions(context.Context) ([]gobizfly.Region, error) {
	return []gobizfly.Region{a.Region}, nil
}

// ListFlavors implements bizfly.API.
func (a *API) ListFlavors(context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
	return a.Flavors, nil
}

// ListVolumeTypes implements bizfly.API.
func (a *API) ListVolumeTypes(context.Context) ([]*gobizfly.VolumeType, error) {
	return a.VolumeTypes, nil
}
