// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

var (
	opListRegions           = list("ListRegions", "/regions", objectBody).at(serviceAccount).inAnyScope()
	opListFlavors           = list("ListFlavors", "/flavors", listBody("id")).inAnyScope()
	opListVolumeTypes       = list("ListVolumeTypes", "/volume-types", wrappedBody("volume_types", "name")).inAnyScope()
	opListOSImages          = list("ListOSImages", "/images", wrappedBody("os_images", "os")).inAnyScope()
	opListCustomImages      = list("ListCustomImages", "/user/images", wrappedBody("images", "id"))
	opListSnapshots         = list("ListSnapshots", "/snapshots", listBody("id"))
	opListVPCNetworks       = list("ListVPCNetworks", "/vpc-networks", listBody("id"))
	opListNetworkInterfaces = list("ListNetworkInterfaces", "/network-interfaces", listBody("id"))
	opAddFirewalls          = change(kindItem, "AddFirewalls", "/network-interfaces/{id}/action", acknowledgement)
	opRemoveFirewalls       = change(kindItem, "RemoveFirewalls", "/network-interfaces/{id}/action", acknowledgement)
	opListFirewalls         = list("ListFirewalls", "/firewalls", listBody("id"))
	opListSSHKeys           = list("ListSSHKeys", "/keypairs", listBody("keypair.name"))

	opListKubernetesVersions = list("ListKubernetesVersions", "/k8s_versions",
		wrappedBody("controller_versions", "kubernetes_version")).
		at(serviceKubernetes).inAnyScope()
	opGetCluster = item("GetCluster", "/_/{uid}", objectBody).at(serviceKubernetes).inAnyScope()
	// opGetLaunchConfigurationMetadata keeps the secrets of its answer.
	opGetLaunchConfigurationMetadata = item("GetLaunchConfigurationMetadata", "/launch_configs/{id}",
		secretObjectBody).at(serviceAutoScaling)
	// opLeaveCluster is a POST, but ends in the same state however often it is sent.
	opLeaveCluster = &operation{
		name: "LeaveCluster", method: http.MethodPost, route: "/engine/cluster_leave/{uid}", service: serviceKubernetes,
		class: classLeave, kind: kindDelete, body: acknowledgement, ownToken: true,
	}
)

// ListRegions implements API. gobizfly knows HN and HCM only and would drop the others.
func (c *Client) ListRegions(ctx context.Context) ([]gobizfly.Region, error) {
	return call(ctx, c, opListRegions, func(g *sdk) ([]gobizfly.Region, error) {
		byName, err := fetch[map[string]*gobizfly.Region](ctx, g, opListRegions, opListRegions.route, nil)
		if err != nil {
			return nil, err
		}
		found := make([]gobizfly.Region, 0, len(byName))
		for name, region := range byName {
			if region == nil {
				return nil, unreadable(kindList, http.StatusOK, "a region without content", nil)
			}
			region.ShortName = cmp.Or(region.ShortName, name)
			found = append(found, *region)
		}
		return found, nil
	})
}

// ListFlavors implements API.
func (c *Client) ListFlavors(ctx context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
	return call(ctx, c, opListFlavors, func(g *sdk) ([]*gobizfly.ServerFlavorResponse, error) {
		return g.CloudServer.Flavors().List(ctx)
	})
}

// ListVolumeTypes implements API.
func (c *Client) ListVolumeTypes(ctx context.Context) ([]*gobizfly.VolumeType, error) {
	return call(ctx, c, opListVolumeTypes, func(g *sdk) ([]*gobizfly.VolumeType, error) {
		return g.CloudServer.Volumes().ListVolumeTypes(ctx, &gobizfly.ListVolumeTypesOptions{})
	})
}

// ListOSImages implements API.
func (c *Client) ListOSImages(ctx context.Context) ([]OSImage, error) {
	return call(ctx, c, opListOSImages, func(g *sdk) (images []OSImage, err error) {
		distributions, err := g.CloudServer.OSImages().List(ctx)
		for _, distribution := range distributions {
			for _, version := range distribution.Version {
				images = append(images, OSImage{ID: version.ID, Distribution: distribution.OSDistribution, Version: version.Name})
			}
		}
		return images, err
	})
}

// ListCustomImages implements API.
func (c *Client) ListCustomImages(ctx context.Context) ([]*gobizfly.CustomImage, error) {
	return call(ctx, c, opListCustomImages, func(g *sdk) ([]*gobizfly.CustomImage, error) {
		return g.CloudServer.CustomImages().List(ctx)
	})
}

// ListSnapshots implements API.
func (c *Client) ListSnapshots(ctx context.Context) ([]*gobizfly.Snapshot, error) {
	return call(ctx, c, opListSnapshots, func(g *sdk) ([]*gobizfly.Snapshot, error) {
		// Without options gobizfly panics.
		return g.CloudServer.Snapshots().List(ctx, &gobizfly.ListSnasphotsOptions{})
	})
}

// ListVPCNetworks implements API.
func (c *Client) ListVPCNetworks(ctx context.Context) ([]*gobizfly.VPCNetwork, error) {
	return call(ctx, c, opListVPCNetworks, func(g *sdk) ([]*gobizfly.VPCNetwork, error) {
		return g.CloudServer.VPCNetworks().List(ctx)
	})
}

// ListNetworkInterfaces implements API. Without a type the API's answer is not documented, so both are asked for.
func (c *Client) ListNetworkInterfaces(ctx context.Context) ([]*gobizfly.NetworkInterface, error) {
	return call(ctx, c, opListNetworkInterfaces, func(g *sdk) ([]*gobizfly.NetworkInterface, error) {
		return g.CloudServer.NetworkInterfaces().List(ctx, &gobizfly.ListNetworkInterfaceOptions{Detailed: "true",
			Type: "LAN_WAN"})
	})
}

// UsedBy returns the id of the server that has the interface; "" when none has.
func UsedBy(port *gobizfly.NetworkInterface) string {
	return cmp.Or(port.AttachedServer.ID, port.DeviceID)
}

// AddFirewalls implements API.
func (c *Client) AddFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error {
	return c.changeFirewalls(ctx, opAddFirewalls, "add_firewall", interfaceID, firewallIDs)
}

// RemoveFirewalls implements API.
func (c *Client) RemoveFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error {
	return c.changeFirewalls(ctx, opRemoveFirewalls, "remove_firewall", interfaceID, firewallIDs)
}

func (c *Client) changeFirewalls(ctx context.Context, op *operation, action, interfaceID string,
	firewallIDs []string) error {
	_, err := call(ctx, c, op, func(g *sdk) (any, error) {
		return g.CloudServer.NetworkInterfaces().Action(ctx, interfaceID,
			&gobizfly.ActionNetworkInterfacePayload{Action: action, SecurityGroups: firewallIDs})
	}, interfaceID)
	return err
}

// ListFirewalls implements API.
func (c *Client) ListFirewalls(ctx context.Context) ([]*gobizfly.Firewall, error) {
	return call(ctx, c, opListFirewalls, func(g *sdk) ([]*gobizfly.Firewall, error) {
		return g.CloudServer.Firewalls().List(ctx, &gobizfly.ListOptions{})
	})
}

// ListSSHKeys implements API.
func (c *Client) ListSSHKeys(ctx context.Context) ([]*gobizfly.KeyPair, error) {
	return call(ctx, c, opListSSHKeys, func(g *sdk) ([]*gobizfly.KeyPair, error) {
		return g.CloudServer.SSHKeys().List(ctx, &gobizfly.ListOptions{})
	})
}

// ListKubernetesVersions implements API.
func (c *Client) ListKubernetesVersions(ctx context.Context) ([]gobizfly.ControllerVersion, error) {
	return call(ctx, c, opListKubernetesVersions, func(g *sdk) ([]gobizfly.ControllerVersion, error) {
		// Without all, the API may leave out versions that a cluster still runs.
		versions, err := g.KubernetesEngine.GetKubernetesVersion(ctx, gobizfly.GetKubernetesVersionOpts{All: lo.ToPtr(true)})
		return lo.FromPtr(versions).ControllerVersions, err
	})
}

// GetCluster implements API.
func (c *Client) GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error) {
	return call(ctx, c, opGetCluster, func(g *sdk) (*gobizfly.FullCluster, error) {
		cluster, err := g.KubernetesEngine.Get(ctx, uid)
		if err != nil {
			return nil, err
		}
		return cluster, same("cluster", cluster.UID, uid)
	}, uid)
}

// GetLaunchConfigurationMetadata implements API.
func (c *Client) GetLaunchConfigurationMetadata(ctx context.Context, id string) (map[string]string, error) {
	return call(ctx, c, opGetLaunchConfigurationMetadata, func(g *sdk) (map[string]string, error) {
		found, err := g.AutoScaling.LaunchConfigurations().Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return lo.MapValues(found.Metadata, func(value any, _ string) string {
			return fmt.Sprint(value)
		}), same("launch configuration", found.ID, id)
	}, id)
}

// LeaveCluster implements API.
func (c *Client) LeaveCluster(ctx context.Context, clusterUID, clusterToken, nodeName string) error {
	if !validHeader(clusterToken) {
		return named(opLeaveCluster.name, notSent(ClassInvalid,
			"BKE_CLUSTER_TOKEN is empty or holds characters that a header cannot carry, set it to the join token of cluster %s",
			clusterUID))
	}
	c.redactor.LearnRequest(clusterToken)
	_, err := call(ctx, c, opLeaveCluster, func(g *sdk) (any, error) {
		return g.KubernetesEngine.ClusterLeave(ctx, clusterUID, clusterToken,
			&gobizfly.ClusterLeaveRequest{NodeName: nodeName})
	}, clusterUID)
	// A node that BKE does not know has left.
	if IsNotFound(err) {
		return nil
	}
	return err
}
