// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
)

// The ways in which the service catalog may write regions. gobizfly from March 2024 to v1.1.31 compares the long name
// exactly and sends everything to production where it does not find it; later versions read all forms.
const (
	// RegionsMixed lists each service under every form (HN, hn, HaNoi), in an order that differs by service.
	RegionsMixed = "mixed"
	// RegionsScattered lists each service once in a region, under a form that differs by service.
	RegionsScattered = "scattered"
	// RegionsLong and RegionsShort list each service once in a region, under HaNoi or under HN.
	RegionsLong  = "long"
	RegionsShort = "short"
	// RegionsNone lists each service once, under no region: of those that differ by region, that of Options.Region.
	RegionsNone = "none"
)

// service is where an API is, in one region. The real cloud distinguishes regions by host name, the sandbox by path, since
// one listener has one name.
type service struct {
	prefix string
	region string
	api    *api
}

// product is the catalog's entry of an API. One that is global has the same URL in all regions.
type product struct {
	api        *api
	code, name string
	path       string
	global     bool
}

// products are all services that a client asks the catalog for. Those without routes are listed too, and answer 404: a
// client that does not find its service in the catalog sends its requests, and its token, to production.
var products = []product{
	{api: serverAPI, code: "CS", name: "Cloud Server", path: "/iaas-cloud/api"},
	{api: engineAPI, code: "BKE", name: "Kubernetes Engine", path: "/api/kubernetes-engine"},
	{api: accountAPI, code: "ACC", name: "BizFly Account", path: "/api/account", global: true},
	{api: scalingAPI, code: "BAS", name: "Auto Scaling", path: "/api/auto-scaling"},
	{api: &api{name: "load_balancer"}, code: "LB", name: "Load Balancer", path: "/api/loadbalancers"},
	{api: &api{name: "vpn_site_to_site"}, code: "VPN", name: "VPN Site to Site", path: "/api/vpnaas"},
	{api: &api{name: "file_storage"}, code: "FS", name: "File Storage", path: "/api/file-storage"},
	{api: &api{name: "cloud_database"}, code: "DB", name: "Cloud Database", path: "/api/cloud-database"},
	{api: &api{name: "kafka"}, code: "KAFKA", name: "Kafka", path: "/api/kafka"},
	{api: &api{name: "key_management_service"}, code: "KMS", name: "Key Management Service", path: "/api/kms"},
	{api: &api{name: "simple_storage"}, code: "S3", name: "Simple Storage", path: "/api/simple-storage"},
	{api: &api{name: "cloud-backup"}, code: "CB", name: "Cloud Backup", path: "/api/cloud-backup"},
	{api: &api{name: "container_registry"}, code: "CR", name: "Container Registry", path: "/api/container-registry", global: true},
	{api: &api{name: "alert"}, code: "CW", name: "Cloud Watcher", path: "/api/alert", global: true},
	{api: &api{name: "cdn"}, code: "CDN", name: "CDN", path: "/api/cdn", global: true},
	{api: &api{name: "dns"}, code: "DNS", name: "DNS", path: "/api/dns", global: true},
	{api: &api{name: "iam"}, code: "IAM", name: "IAM", path: "/api/iam", global: true},
}

// services are the places of all APIs, the one that is below none of the others last.
var services = func() []service {
	var all []service
	for _, p := range products {
		all = append(all, service{prefix: p.prefix(RegionHN), region: RegionHN, api: p.api})
		if !p.global {
			all = append(all, service{prefix: p.prefix(RegionHCM), region: RegionHCM, api: p.api})
		}
	}
	return append(all, service{prefix: authPrefix, region: RegionHN, api: loginAPI})
}()

func (p product) prefix(region string) string {
	if p.global || region == RegionHN {
		return p.path
	}
	return "/" + strings.ToLower(region) + p.path
}

type serviceEntry struct {
	CanonicalName string `json:"canonical_name"`
	Code          string `json:"code"`
	Description   string `json:"description"`
	Enabled       bool   `json:"enabled"`
	Icon          string `json:"icon"`
	ID            int    `json:"id"`
	Name          string `json:"name"`
	Region        string `json:"region"`
	ServiceURL    string `json:"service_url"`
}

// regionForms are the forms under which the n-th service is listed in a region.
func (c *Cloud) regionForms(n int, region Region) []string {
	forms := []string{region.ShortName, strings.ToLower(region.ShortName), region.RegionName}
	forms = append(forms[n%len(forms):], forms[:n%len(forms)]...)
	switch c.opts.ServiceRegions {
	case RegionsLong:
		return []string{region.RegionName}
	case RegionsShort:
		return []string{region.ShortName}
	case RegionsScattered:
		return forms[:1]
	case RegionsNone:
		if region.ShortName == c.opts.Region {
			return []string{""}
		}
		return nil
	}
	return forms
}

func (c *Cloud) serviceEntries(base string) []serviceEntry {
	entries := []serviceEntry{}
	for _, region := range c.opts.Catalog.Regions {
		for n, p := range products {
			if slices.Contains(c.opts.OmitServices, p.api.name) {
				continue
			}
			url := base + p.prefix(region.ShortName)
			for _, form := range c.regionForms(n, region) {
				entries = append(entries, serviceEntry{
					CanonicalName: p.api.name, Code: p.code, Description: p.name, Enabled: true, Icon: url, ID: len(entries) + 1,
					Name: p.name, Region: form, ServiceURL: url,
				})
			}
		}
	}
	return entries
}

var _ = loginAPI.serve(openTo(on(http.MethodGet, "/auth/service", (*Cloud).listServices)))

func (c *Cloud) listServices(q *call) reply {
	return ok(map[string]any{"services": c.serviceEntries(q.base)})
}
