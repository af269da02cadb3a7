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

package cloud

import "net/http"

const (
	authPrefix    = "/api"
	serverHN      = "/iaas-cloud/api"
	serverHCM     = "/hcm/iaas-cloud/api"
	engineHN      = "/api/kubernetes-engine"
	engineHCM     = "/hcm/api/kubernetes-engine"
	accountPrefix = "/api/account"
)

// services are all routes. The real cloud tells regions apart by host name; here the path does, since one listener has
// one name. They are matched in order, so that the longer prefixes come first.
var services []service

func init() {
	services = []service{
		{prefix: serverHN, region: RegionHN, routes: serverRoutes},
		{prefix: serverHCM, region: RegionHCM, routes: serverRoutes},
		{prefix: engineHN, region: RegionHN, routes: engineRoutes},
		{prefix: engineHCM, region: RegionHCM, routes: engineRoutes},
		{prefix: accountPrefix, region: RegionHN, routes: accountRoutes},
		{prefix: authPrefix, region: RegionHN, routes: authRoutes},
	}
}

var authRoutes = []route{
	openTo(on(http.MethodPost, "/token", (*Cloud).createToken)),
	openTo(on(http.MethodGet, "/auth/service", (*Cloud).listServices)),
	on(http.MethodGet, "/flavor-generations", (*Cloud).listGenerations),
}

var accountRoutes = []route{
	on(http.MethodGet, "/regions", (*Cloud).listRegions),
	on(http.MethodGet, "/regions/{name}", (*Cloud).getRegion),
	on(http.MethodGet, "/user", (*Cloud).getUser),
}

var serverRoutes = []route{
	on(http.MethodGet, "/servers", (*Cloud).listServers),
	on(http.MethodPost, "/servers", (*Cloud).createServers),
	on(http.MethodGet, "/servers/{id}", (*Cloud).getServer),
	on(http.MethodDelete, "/servers/{id}", (*Cloud).deleteServer),
	on(http.MethodPost, "/servers/{id}/action", (*Cloud).serverAction),
	on(http.MethodGet, "/tasks/{id}", (*Cloud).getTask),
	on(http.MethodGet, "/flavors", (*Cloud).listFlavors),
	on(http.MethodGet, "/flavor-generations", (*Cloud).listGenerations),
	on(http.MethodGet, "/server-types", (*Cloud).listServerTypes),
	on(http.MethodGet, "/images", (*Cloud).listImages),
	on(http.MethodGet, "/user/images", (*Cloud).listCustomImages),
	on(http.MethodGet, "/user/image/{id}", (*Cloud).getCustomImage),
	on(http.MethodDelete, "/user/image/{id}", (*Cloud).deleteCustomImage),
	on(http.MethodGet, "/volumes", (*Cloud).listVolumes),
	on(http.MethodPost, "/volumes", (*Cloud).createVolume),
	on(http.MethodGet, "/volumes/{id}", (*Cloud).getVolume),
	on(http.MethodDelete, "/volumes/{id}", (*Cloud).deleteVolume),
	on(http.MethodPost, "/volumes/{id}/action", (*Cloud).volumeAction),
	on(http.MethodGet, "/volume-types", (*Cloud).listVolumeTypes),
	on(http.MethodGet, "/snapshots", (*Cloud).listSnapshots),
	on(http.MethodPost, "/snapshots", (*Cloud).createSnapshot),
	on(http.MethodGet, "/snapshots/{id}", (*Cloud).getSnapshot),
	on(http.MethodDelete, "/snapshots/{id}", (*Cloud).deleteSnapshot),
	on(http.MethodGet, "/vpc-networks", (*Cloud).listVPCs),
	on(http.MethodPost, "/vpc-networks", (*Cloud).createVPC),
	on(http.MethodGet, "/vpc-networks/{id}", (*Cloud).getVPC),
	on(http.MethodDelete, "/vpc-networks/{id}", (*Cloud).deleteVPC),
	on(http.MethodPost, "/vpc-networks/{id}/network-interfaces", (*Cloud).createPort),
	on(http.MethodGet, "/network-interfaces", (*Cloud).listPorts),
	on(http.MethodGet, "/network-interfaces/{id}", (*Cloud).getPort),
	on(http.MethodDelete, "/network-interfaces/{id}", (*Cloud).deletePort),
	on(http.MethodPost, "/network-interfaces/{id}/action", (*Cloud).portAction),
	on(http.MethodGet, "/wanips", (*Cloud).listWanIPs),
	on(http.MethodPost, "/wanips", (*Cloud).createWanIP),
	on(http.MethodGet, "/wanips/{id}", (*Cloud).getWanIP),
	on(http.MethodDelete, "/wanips/{id}", (*Cloud).deleteWanIP),
	on(http.MethodPost, "/wanips/{id}/action", (*Cloud).wanIPAction),
	on(http.MethodGet, "/firewalls", (*Cloud).listFirewalls),
	on(http.MethodPost, "/firewalls", (*Cloud).createFirewall),
	on(http.MethodGet, "/firewalls/{id}", (*Cloud).getFirewall),
	on(http.MethodDelete, "/firewalls/{id}", (*Cloud).deleteFirewall),
	on(http.MethodGet, "/keypairs", (*Cloud).listKeyPairs),
	on(http.MethodPost, "/keypairs", (*Cloud).createKeyPair),
	on(http.MethodGet, "/keypairs/{name}", (*Cloud).getKeyPair),
	on(http.MethodDelete, "/keypairs/{name}", (*Cloud).deleteKeyPair),
}

var engineRoutes = []route{
	on(http.MethodGet, "/k8s_versions", (*Cloud).listVersions),
	on(http.MethodGet, "/_", (*Cloud).listClusters),
	on(http.MethodGet, "/_/{uid}", (*Cloud).getCluster),
	// The cluster's token is what counts here: nodes, which have no other, call it as well.
	openTo(on(http.MethodPost, "/engine/cluster_leave/{uid}", (*Cloud).leaveCluster)),
}
