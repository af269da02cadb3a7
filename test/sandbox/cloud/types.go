// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"time"
)

// Server is one server as the API shows it. The JSON form is the wire form; only Truth, which the API never sends, is
// added in ground truth.
type Server struct {
	ID               string               `json:"id"`
	Name             string               `json:"name"`
	Status           string               `json:"status"`
	TenantID         string               `json:"tenant_id"`
	UserID           string               `json:"user_id"`
	Metadata         map[string]string    `json:"metadata"`
	HostID           string               `json:"hostID"`
	Flavor           ServerFlavor         `json:"flavor"`
	FlavorName       string               `json:"flavor_name"`
	Created          string               `json:"created"`
	Updated          string               `json:"updated"`
	KeyName          *string              `json:"key_name"`
	Addresses        map[string][]Address `json:"addresses"`
	AccessIPv4       string               `json:"accessIPv4"`
	AccessIPv6       string               `json:"accessIPv6"`
	DiskConfig       string               `json:"OS-DCF:diskConfig"`
	Progress         int                  `json:"progress"`
	ConfigDrive      string               `json:"config_drive"`
	AvailabilityZone string               `json:"OS-EXT-AZ:availability_zone"`
	LaunchedAt       *string              `json:"OS-SRV-USG:launched_at"`
	TerminatedAt     *string              `json:"OS-SRV-USG:terminated_at"`
	SecurityGroups   []SecurityGroup      `json:"security_groups"`
	TaskState        *string              `json:"OS-EXT-STS:task_state"`
	VMState          string               `json:"OS-EXT-STS:vm_state"`
	PowerState       int                  `json:"OS-EXT-STS:power_state"`
	VolumesAttached  []AttachedVolume     `json:"os-extended-volumes:volumes_attached"`
	Category         string               `json:"category"`
	IPAddresses      IPAddresses          `json:"ip_addresses"`
	ZoneName         string               `json:"zone_name"`
	RegionName       string               `json:"region_name"`
	AutoscaleService struct{}             `json:"autoscale_service"`
	IPv6             bool                 `json:"ipv6"`
	NetworkPlan      string               `json:"network_plan"`
	BillingPlan      string               `json:"billing_plan"`
	Locked           bool                 `json:"locked"`
	IsAvailable      bool                 `json:"is_available"`
	IsCreatedWan     bool                 `json:"is_created_wan"`
	Fault            *ServerFault         `json:"fault,omitempty"`

	// Truth is what only the sandbox knows; nil in every response of the API.
	Truth *ServerTruth `json:"_sandbox,omitempty"`
}

// ServerTruth is the ground truth about a server that no API call returns.
type ServerTruth struct {
	Project   string `json:"project"`
	Region    string `json:"region"`
	ImageID   string `json:"image_id"`
	ImageType string `json:"image_type"`
	// WorkerImage is true where the image carries the bootstrap script of the Kubernetes Engine.
	WorkerImage bool `json:"worker_image"`
	// UserData is the text given at create, verbatim.
	UserData string `json:"user_data"`
	// Flavor is the catalog entry, with the GPU and the sizes.
	Flavor Flavor `json:"flavor"`
	// RootDiskGiB is the size of the root disk.
	RootDiskGiB int `json:"root_disk_gib"`
	// CreatedAt is when the create request was accepted.
	CreatedAt time.Time `json:"created_at"`
	// ActiveAt is when the server last became ACTIVE; zero while it is not.
	ActiveAt time.Time `json:"active_at,omitzero"`
	// Deleting is true from the accepted delete until the server is gone.
	Deleting bool `json:"deleting"`
	// NoJoin is true where a fault keeps the guest from ever joining.
	NoJoin bool `json:"no_join,omitempty"`
	// Guest is what the machine inside did, set by SetGuest.
	Guest *Guest `json:"guest,omitempty"`
}

// Guest is what became of the machine inside a server.
type Guest struct {
	// Joined is true once the machine has registered its Node.
	Joined bool `json:"joined"`
	// Node is the name of that Node.
	Node string `json:"node,omitempty"`
	// Reason is why a machine that booted never joins.
	Reason string `json:"reason,omitempty"`
}

// ServerFlavor is the flavor as embedded in a server.
type ServerFlavor struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	RAM        int     `json:"ram"`
	Disk       int     `json:"disk"`
	Swap       string  `json:"swap"`
	VCPUs      int     `json:"vcpus"`
	Ephemeral  int     `json:"OS-FLV-EXT-DATA:ephemeral"`
	Disabled   bool    `json:"OS-FLV-DISABLED:disabled"`
	Public     bool    `json:"os-flavor-access:is_public"`
	RXTXFactor float64 `json:"rxtx_factor"`
}

// ServerFault is why a server is in ERROR, as the compute service words it.
type ServerFault struct {
	Code    int    `json:"code"`
	Created string `json:"created"`
	Message string `json:"message"`
}

// Address is one address of a port.
type Address struct {
	Version     int    `json:"version"`
	Addr        string `json:"addr"`
	Type        string `json:"OS-EXT-IPS:type"`
	MAC         string `json:"OS-EXT-IPS-MAC:mac_addr"`
	NetworkName string `json:"network_name,omitempty"`
}

// IPAddresses are a server's addresses by kind.
type IPAddresses struct {
	LAN   []Address `json:"LAN"`
	WANV4 []Address `json:"WAN_V4"`
	WANV6 []Address `json:"WAN_V6"`
}

// SecurityGroup names one security group of one port.
type SecurityGroup struct {
	Name string `json:"name"`
}

// AttachedVolume is a volume as embedded in a server: bootable is a string here, unlike in Volume.
type AttachedVolume struct {
	ID               string            `json:"id"`
	Status           string            `json:"status"`
	Size             int               `json:"size"`
	AvailabilityZone string            `json:"availability_zone"`
	CreatedAt        string            `json:"created_at"`
	Attachments      []AttachedAt      `json:"attachments"`
	Name             string            `json:"name"`
	Description      *string           `json:"description"`
	VolumeType       string            `json:"volume_type"`
	Metadata         map[string]string `json:"metadata"`
	Bootable         string            `json:"bootable"`
	AttachedType     string            `json:"attached_type"`
	Type             string            `json:"type"`
	Category         string            `json:"category"`
	Snapshots        []string          `json:"snapshots"`

	brief bool
}

// MarshalJSON writes only the id where the API does so: in servers that are nested in the reply of an action.
func (v AttachedVolume) MarshalJSON() ([]byte, error) {
	if v.brief {
		return json.Marshal(struct {
			ID string `json:"id"`
		}{v.ID})
	}
	type plain AttachedVolume
	return json.Marshal(plain(v))
}

// AttachedAt is where a volume is attached, as embedded in a server.
type AttachedAt struct {
	ID           string `json:"id"`
	AttachmentID string `json:"attachment_id"`
	VolumeID     string `json:"volume_id"`
	ServerID     string `json:"server_id"`
	HostName     string `json:"host_name"`
	Device       string `json:"device"`
	AttachedAt   string `json:"attached_at"`
}

// Volume is one volume as GET /volumes shows it.
type Volume struct {
	ID               string             `json:"id"`
	Status           string             `json:"status"`
	Size             int                `json:"size"`
	AvailabilityZone string             `json:"availability_zone"`
	CreatedAt        string             `json:"created_at"`
	UpdatedAt        string             `json:"updated_at"`
	Attachments      []VolumeAttachment `json:"attachments"`
	Name             string             `json:"name"`
	Description      *string            `json:"description"`
	VolumeType       string             `json:"volume_type"`
	SnapshotID       *string            `json:"snapshot_id"`
	Metadata         map[string]string  `json:"metadata"`
	Bootable         bool               `json:"bootable"`
	Encrypted        bool               `json:"encrypted"`
	UserID           string             `json:"user_id"`
	TenantID         string             `json:"os-vol-tenant-attr:tenant_id"`
	Type             string             `json:"type"`
	Category         string             `json:"category"`
	RegionName       string             `json:"region_name"`
	AttachedType     string             `json:"attached_type"`
	BillingPlan      string             `json:"billing_plan"`
	ImageMetadata    map[string]string  `json:"volume_image_metadata,omitempty"`
}

// VolumeAttachment is where a volume is attached, as embedded in a volume.
type VolumeAttachment struct {
	ServerID     string       `json:"server_id"`
	AttachmentID string       `json:"attachment_id"`
	VolumeID     string       `json:"volume_id"`
	Device       string       `json:"device"`
	ID           string       `json:"id"`
	AttachedAt   string       `json:"attached_at"`
	Server       NestedServer `json:"server"`
}

// NestedServer is a server inside a volume, of which the API shows only the ids of its volumes.
type NestedServer struct {
	ID              string           `json:"id"`
	Name            string           `json:"name"`
	Status          string           `json:"status"`
	VolumesAttached []AttachedVolume `json:"os-extended-volumes:volumes_attached"`
}

// NetworkInterface is one LAN or WAN port.
type NetworkInterface struct {
	ID                  string         `json:"id"`
	Name                string         `json:"name"`
	NetworkID           string         `json:"network_id"`
	TenantID            string         `json:"tenant_id"`
	MacAddress          string         `json:"mac_address"`
	AdminStateUp        bool           `json:"admin_state_up"`
	Status              string         `json:"status"`
	DeviceID            string         `json:"device_id"`
	DeviceOwner         string         `json:"device_owner"`
	FixedIPs            []FixedIP      `json:"fixed_ips"`
	AllowedAddressPairs []string       `json:"allowed_address_pairs"`
	ExtraDHCPOpts       []string       `json:"extra_dhcp_opts"`
	SecurityGroups      []string       `json:"security_groups"`
	Description         string         `json:"description"`
	VnicType            string         `json:"binding:vnic_type"`
	PortSecurity        bool           `json:"port_security_enabled"`
	QosPolicyID         *string        `json:"qos_policy_id"`
	Tags                []string       `json:"tags"`
	CreatedAt           string         `json:"created_at"`
	UpdatedAt           string         `json:"updated_at"`
	RevisionNumber      int            `json:"revision_number"`
	ProjectID           string         `json:"project_id"`
	Type                string         `json:"type,omitempty"`
	BillingType         string         `json:"billing_type"`
	IPAddress           string         `json:"ip_address"`
	IPVersion           int            `json:"ip_version"`
	AttachedServer      AttachedServer `json:"attached_server"`
}

// WanIP is one public address: a port with what only public ones have.
type WanIP struct {
	NetworkInterface
	NetworkName      string `json:"network_name"`
	Bandwidth        int    `json:"bandwidth"`
	AvailabilityZone string `json:"availability_zone"`
	IsMain           bool   `json:"is_main"`
}

// AttachedServer names the server that a port belongs to; empty where the port is free.
type AttachedServer struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// FixedIP is one address of a port with its subnet.
type FixedIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
	IPVersion int    `json:"ip_version"`
}

// Task is one asynchronous operation.
type Task struct {
	ID       string `json:"id"`
	Action   string `json:"action"`
	ServerID string `json:"server_id"`
	Ready    bool   `json:"ready"`
	Success  bool   `json:"success"`
	Message  string `json:"message,omitempty"`
	// CreatedAt is when the call was accepted, EndsAt when the operation ends or ended.
	CreatedAt time.Time `json:"created_at"`
	EndsAt    time.Time `json:"ends_at"`
}

// State is the ground truth: everything that exists, in every project and region, hidden or not.
type State struct {
	Servers           []Server           `json:"servers"`
	Volumes           []Volume           `json:"volumes"`
	NetworkInterfaces []NetworkInterface `json:"network_interfaces"`
	WanIPs            []WanIP            `json:"wan_ips"`
	Tasks             []Task             `json:"tasks"`
	// LeftNodes are the names that cluster_leave was called for, oldest first.
	LeftNodes []string `json:"left_nodes"`
	// ForeignRequests counts what was sent through this listener, used as a proxy, to another host.
	ForeignRequests int `json:"foreign_requests"`
	// TokensIssued counts the tokens that were issued.
	TokensIssued int `json:"tokens_issued"`
}

// Resources describes every server, volume, network interface and address that exists.
func (s State) Resources() []string {
	found := make([]string, 0, len(s.Servers)+len(s.Volumes)+len(s.NetworkInterfaces)+len(s.WanIPs))
	for _, server := range s.Servers {
		found = append(found, "server "+server.Name+" ("+server.Status+")")
	}
	for _, volume := range s.Volumes {
		found = append(found, "volume "+volume.Name+" ("+volume.Status+")")
	}
	for _, nic := range s.NetworkInterfaces {
		found = append(found, "network interface "+nic.Name)
	}
	for _, ip := range s.WanIPs {
		found = append(found, "address "+ip.IPAddress)
	}
	return found
}

// Request is one call that the sandbox received.
type Request struct {
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Query  string    `json:"query,omitempty"`
	Route  string    `json:"route"`
	Status int       `json:"status"`
	Time   time.Time `json:"time"`
	// Fault names the effects that were injected, in order.
	Fault string `json:"fault,omitempty"`
	// Body is what was sent (shortened); it may hold credentials and so is never shown over HTTP.
	Body []byte `json:"-"`
	// Header is what was sent, for the same reason only in Go.
	Header map[string][]string `json:"-"`
}
