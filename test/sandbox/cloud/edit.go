// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"slices"
)

// ServerEdit changes a server directly, past all checks, as a user of the dashboard or an operator of the
// cloud may. What is nil stays as it is.
type ServerEdit struct {
	Name        *string `json:"name,omitempty"`
	Status      *string `json:"status,omitempty"`
	Flavor      *string `json:"flavor,omitempty"`
	Zone        *string `json:"zone,omitempty"`
	BillingPlan *string `json:"billing_plan,omitempty"`
	NetworkPlan *string `json:"network_plan,omitempty"`
	// Project moves it to another project, as the vendor's support does: it runs on, and its disks stay where they were.
	Project *string `json:"project,omitempty"`
	// Metadata is merged into the server's; null removes a key.
	Metadata map[string]*string `json:"metadata,omitempty"`
	// Networks are the private networks that it is in from now on.
	Networks []string `json:"networks,omitempty"`
	// RootDisk changes the disk that it boots from.
	RootDisk *VolumeEdit `json:"root_disk,omitempty"`
	// DetachVolumes takes disks off it.
	DetachVolumes []string `json:"detach_volumes,omitempty"`
}

// VolumeEdit changes a volume directly, past all checks.
type VolumeEdit struct {
	Size        *int    `json:"size,omitempty"`
	VolumeType  *string `json:"volume_type,omitempty"`
	BillingPlan *string `json:"billing_plan,omitempty"`
}

// ApplyServerEdit changes a server: all of the edit or, with an error, nothing.
func (c *Cloud) ApplyServerEdit(id string, edit ServerEdit) error {
	err := fmt.Errorf("server %s: %w", id, ErrNotFound)
	c.with(func() {
		if s := c.servers[id]; s != nil {
			err = c.editServer(s, edit)
		}
	})
	return err
}

func (c *Cloud) editServer(s *server, edit ServerEdit) error {
	q := &call{project: s.truth.Project, region: s.truth.Region}
	flavor, err := c.editedFlavor(s, edit)
	if err != nil {
		return err
	}
	var vpcs []VPC
	for _, id := range edit.Networks {
		vpc, found := c.vpc(q, id)
		if !found {
			return fmt.Errorf("network %s: %w", id, ErrNotFound)
		}
		vpcs = append(vpcs, vpc)
	}
	for _, id := range edit.DetachVolumes {
		if v := c.volumes[id]; v == nil || v.server != s.wire.ID {
			return fmt.Errorf("volume %s of server %s: %w", id, s.wire.ID, ErrNotFound)
		}
	}
	if edit.RootDisk != nil {
		if err := c.editVolume(c.volumes[s.volumes[0]], *edit.RootDisk); err != nil {
			return err
		}
	}
	if flavor != nil {
		c.setFlavor(s, *flavor)
	}
	if edit.Networks != nil {
		c.setNetworks(s, vpcs)
	}
	for _, id := range edit.DetachVolumes {
		c.detach(c.volumes[id], s)
	}
	c.editFields(s, edit)
	return nil
}

func (c *Cloud) editedFlavor(s *server, edit ServerEdit) (*Flavor, error) {
	if edit.Flavor == nil {
		return nil, nil
	}
	flavor, found := c.flavor(s.truth.Region, *edit.Flavor, s.wire.Category)
	if !found {
		return nil, fmt.Errorf("flavor %s: %w", *edit.Flavor, ErrNotFound)
	}
	return &flavor, nil
}

// editFields changes what is only written down.
func (c *Cloud) editFields(s *server, edit ServerEdit) {
	set := func(target *string, value *string) {
		if value != nil {
			*target = *value
		}
	}
	set(&s.wire.Name, edit.Name)
	set(&s.wire.BillingPlan, edit.BillingPlan)
	set(&s.wire.NetworkPlan, edit.NetworkPlan)
	set(&s.truth.Project, edit.Project)
	set(&s.wire.AvailabilityZone, edit.Zone)
	set(&s.wire.ZoneName, edit.Zone)
	for key, value := range map[string]*string{"billing_plan": edit.BillingPlan, "network_plan": edit.NetworkPlan} {
		if value != nil {
			s.wire.Metadata[key] = *value
		}
	}
	for key, value := range edit.Metadata {
		if value == nil {
			delete(s.wire.Metadata, key)
		} else {
			s.wire.Metadata[key] = *value
		}
	}
	if edit.Status != nil {
		c.setStatusFromOutside(s, *edit.Status)
	}
	c.chargeServer(s)
}

// setNetworks gives a server a port in each of these networks and in no other.
func (c *Cloud) setNetworks(s *server, vpcs []VPC) {
	firewalls := c.firewallsOf(s)
	var others []string
	for _, id := range s.ports {
		p := c.ports[id]
		if p != nil && !slices.ContainsFunc(vpcs, func(v VPC) bool { return v.ID == p.networkID }) {
			others = append(others, p.networkID)
		}
	}
	c.removePortsIn(s, others)
	for _, vpc := range vpcs {
		if !c.hasPortIn(s, vpc.ID) {
			c.addPort(s, vpc, firewalls)
		}
	}
}

// setFlavor changes the flavor of a server, independent of stock.
func (c *Cloud) setFlavor(s *server, flavor Flavor) {
	s.wire.Flavor.ID, s.wire.Flavor.Name, s.wire.Flavor.RAM, s.wire.Flavor.VCPUs = flavor.ID, flavor.Name, flavor.RAM, flavor.VCPUs
	s.wire.FlavorName, s.wire.Category = shortName(flavor.Name), flavor.Category
	flavor.Omit = nil
	s.truth.Flavor = flavor
	c.chargeServer(s)
}

func (c *Cloud) hasPortIn(s *server, network string) bool {
	return slices.ContainsFunc(s.ports, func(id string) bool { return c.ports[id] != nil && c.ports[id].networkID == network })
}

// firewallsOf are those that the server's first port has.
func (c *Cloud) firewallsOf(s *server) []string {
	for _, id := range s.ports {
		if p := c.ports[id]; p != nil {
			return slices.Clone(p.firewalls)
		}
	}
	return nil
}

// removePortsIn takes a server out of networks: ports that were made for it go, others become free.
func (c *Cloud) removePortsIn(s *server, networks []string) {
	for _, id := range slices.Clone(s.ports) {
		switch p := c.ports[id]; {
		case p == nil || p.wan || !slices.Contains(networks, p.networkID):
		case p.implicit:
			c.removePort(p)
		default:
			c.detachPort(p, s)
		}
	}
}

func (c *Cloud) editVolume(v *volume, edit VolumeEdit) error {
	if edit.VolumeType != nil {
		types := c.opts.Catalog.VolumeTypes[v.region]
		i := slices.IndexFunc(types, func(t VolumeType) bool { return t.Name == *edit.VolumeType })
		if i < 0 {
			return fmt.Errorf("volume type %s: %w", *edit.VolumeType, ErrNotFound)
		}
		v.wire.VolumeType, v.wire.Type = types[i].Name, mediumOf(types[i])
	}
	if edit.Size != nil {
		v.wire.Size = *edit.Size
	}
	if edit.BillingPlan != nil {
		v.wire.BillingPlan = *edit.BillingPlan
		v.wire.Metadata["billing_plan"] = *edit.BillingPlan
	}
	c.chargeVolume(v)
	return nil
}

// editRoutes serve edits under /_sandbox/.
func (c *Cloud) editRoutes(mux *http.ServeMux) {
	mux.HandleFunc("PATCH /_sandbox/servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		change(c, func(edit ServerEdit) error { return c.ApplyServerEdit(r.PathValue("id"), edit) })(w, r)
	})
}
