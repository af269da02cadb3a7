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

package bizfly

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/bizflycloud/gobizfly"
)

// read returns the operation of a plain list.
func read(name, route, service string, body bodyRule) *operation {
	return &operation{
		name: name, method: http.MethodGet, route: route, service: service,
		class: classRead, kind: kindList, idempotent: true, body: body,
	}
}

// offer returns the operation of a list of what the cloud offers, which belongs to no project and is read before the first scope is
// confirmed.
func offer(name, route, service string, body bodyRule) *operation {
	op := read(name, route, service, body)
	op.anyScope = true
	return op
}

var (
	opListRegions           = offer("ListRegions", "/regions", serviceAccount, objectBody)
	opListFlavors           = offer("ListFlavors", "/flavors", serviceServers, listBody("id"))
	opListServerTypes       = offer("ListServerTypes", "/server-types", serviceServers, wrappedBody("server_types", "name"))
	opListVolumeTypes       = offer("ListVolumeTypes", "/volume-types", serviceServers, wrappedBody("volume_types", "name"))
	opListOSImages          = offer("ListOSImages", "/images", serviceServers, wrappedBody("os_images", "os"))
	opListCustomImages      = read("ListCustomImages", "/user/images", serviceServers, wrappedBody("images", "id"))
	opListSnapshots         = read("ListSnapshots", "/snapshots", serviceServers, snapshotBody)
	opListVPCNetworks       = read("ListVPCNetworks", "/vpc-networks", serviceServers, listBody("id"))
	opListNetworkInterfaces = read("ListNetworkInterfaces", "/network-interfaces", serviceServers, listBody("id"))
	opListFirewalls         = read("ListFirewalls", "/firewalls", serviceServers, listBody("id"))
	opListSSHKeys           = read("ListSSHKeys", "/keypairs", serviceServers, listBody("keypair.name"))
)

// listOf performs a call that returns a list, which is never nil when there is no error.
func listOf[T any](ctx context.Context, c *Client, op *operation, call func(context.Context, *gobizfly.Client) ([]T, error)) ([]T, error) {
	list := []T{}
	err := c.do(ctx, op, nil, func(ctx context.Context, client *gobizfly.Client) error {
		found, err := call(ctx, client)
		if err != nil {
			return err
		}
		list = append([]T{}, found...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// fetch reads what gobizfly has a path but no sufficient method for.
func fetch(ctx context.Context, client *gobizfly.Client, service, path string) ([]byte, error) {
	request, err := client.NewRequest(ctx, http.MethodGet, service, path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// ListRegions implements API. gobizfly knows HN and HCM only and would drop the others.
func (c *Client) ListRegions(ctx context.Context) ([]gobizfly.Region, error) {
	return listOf(ctx, c, opListRegions, func(ctx context.Context, client *gobizfly.Client) ([]gobizfly.Region, error) {
		raw, err := fetch(ctx, client, opListRegions.service, opListRegions.route)
		if err != nil {
			return nil, err
		}
		var byName map[string]*gobizfly.Region
		if err := json.Unmarshal(raw, &byName); err != nil {
			return nil, err
		}
		found := make([]gobizfly.Region, 0, len(byName))
		for name, region := range byName {
			if region == nil {
				return nil, unreadable(kindList, http.StatusOK, "a region without content", nil)
			}
			fill(&region.ShortName, name)
			found = append(found, *region)
		}
		slices.SortFunc(found, func(a, b gobizfly.Region) int {
			return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.ShortName, b.ShortName))
		})
		return found, nil
	})
}

// ListFlavors implements API.
func (c *Client) ListFlavors(ctx context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
	return listOf(ctx, c, opListFlavors, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.ServerFlavorResponse, error) {
		return client.CloudServer.Flavors().List(ctx)
	})
}

// ListServerTypes implements API.
func (c *Client) ListServerTypes(ctx context.Context) ([]*gobizfly.ServerType, error) {
	return listOf(ctx, c, opListServerTypes, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.ServerType, error) {
		return client.CloudServer.ListServerTypes(ctx)
	})
}

// ListVolumeTypes implements API.
func (c *Client) ListVolumeTypes(ctx context.Context) ([]*gobizfly.VolumeType, error) {
	return listOf(ctx, c, opListVolumeTypes, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.VolumeType, error) {
		return client.CloudServer.Volumes().ListVolumeTypes(ctx, &gobizfly.ListVolumeTypesOptions{})
	})
}

// ListOSImages implements API.
func (c *Client) ListOSImages(ctx context.Context) ([]OSImage, error) {
	return listOf(ctx, c, opListOSImages, func(ctx context.Context, client *gobizfly.Client) ([]OSImage, error) {
		distributions, err := client.CloudServer.OSImages().List(ctx)
		if err != nil {
			return nil, err
		}
		var images []OSImage
		for _, distribution := range distributions {
			for _, version := range distribution.Version {
				images = append(images, OSImage{ID: version.ID, Distribution: distribution.OSDistribution, Version: version.Name})
			}
		}
		return images, nil
	})
}

// ListCustomImages implements API.
func (c *Client) ListCustomImages(ctx context.Context) ([]*gobizfly.CustomImage, error) {
	return listOf(ctx, c, opListCustomImages, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.CustomImage, error) {
		return client.CloudServer.CustomImages().List(ctx)
	})
}

// snapshotBody leaves out the volume that each snapshot was made of: it is most of the text, is not used, and one value
// in it that gobizfly does not expect would lose the whole list.
func snapshotBody(body []byte) ([]byte, error) {
	document, err := decode(body)
	if err != nil {
		return nil, err
	}
	if err := checkList(document, "id"); err != nil {
		return nil, err
	}
	for _, element := range document.([]any) {
		delete(element.(map[string]any), "volume")
	}
	return encode(document)
}

// ListSnapshots implements API.
func (c *Client) ListSnapshots(ctx context.Context) ([]*gobizfly.Snapshot, error) {
	return listOf(ctx, c, opListSnapshots, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.Snapshot, error) {
		// Without options gobizfly panics.
		return client.CloudServer.Snapshots().List(ctx, &gobizfly.ListSnasphotsOptions{})
	})
}

// ListVPCNetworks implements API.
func (c *Client) ListVPCNetworks(ctx context.Context) ([]*gobizfly.VPCNetwork, error) {
	return listOf(ctx, c, opListVPCNetworks, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.VPCNetwork, error) {
		return client.CloudServer.VPCNetworks().List(ctx)
	})
}

// ListNetworkInterfaces implements API. Without a type the API's answer is not documented, so both are asked for.
func (c *Client) ListNetworkInterfaces(ctx context.Context) ([]*gobizfly.NetworkInterface, error) {
	return listOf(ctx, c, opListNetworkInterfaces, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.NetworkInterface, error) {
		return client.CloudServer.NetworkInterfaces().List(ctx, &gobizfly.ListNetworkInterfaceOptions{Detailed: "true", Type: "LAN_WAN"})
	})
}

// ListFirewalls implements API.
func (c *Client) ListFirewalls(ctx context.Context) ([]*gobizfly.Firewall, error) {
	return listOf(ctx, c, opListFirewalls, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.Firewall, error) {
		return client.CloudServer.Firewalls().List(ctx, &gobizfly.ListOptions{})
	})
}

// ListSSHKeys implements API.
func (c *Client) ListSSHKeys(ctx context.Context) ([]*gobizfly.KeyPair, error) {
	return listOf(ctx, c, opListSSHKeys, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.KeyPair, error) {
		return client.CloudServer.SSHKeys().List(ctx, &gobizfly.ListOptions{})
	})
}
