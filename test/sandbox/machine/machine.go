// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine runs servers of the sandbox as real machines: a namespace of each kind, a disk of the flavor's size over a
// shared root file system, control groups of their own, and systemd and cloud-init of the image, which read their user data from the
// metadata service. It needs root on Linux, and changes nothing outside the network namespace that it is started in, but for control
// groups, which it removes.
package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
)

// Command is the first argument with which the program is started again, inside of the machine that it then becomes: Inside.
const Command = "sandbox-machine"

// Metadata is the address of the metadata service, and of the router of every machine.
const Metadata = "169.254.169.254"

// Options are what all machines share.
type Options struct {
	// Image is the root file system, which is never written to.
	Image string
	// Dir is where machines have their disks and consoles: <Dir>/<id>/console.log is what a machine printed while it booted.
	Dir string
	// Log gets what happens; nil discards it.
	Log *slog.Logger
}

// Spec is one machine.
type Spec struct {
	ID, Name, Zone string
	// Addresses are the addresses of the machine's only network interface.
	Addresses []string
	// Meta is the metadata that a user gave the server, and UserData its user data.
	Meta     map[string]string
	UserData string
	CPUs     int
	// MemoryMiB is what the machine may use, VisibleKiB what it sees: a hypervisor and a kernel keep the rest.
	MemoryMiB  int
	VisibleKiB int64
	DiskGiB    int
}

// mac is the hardware address of the network interface, which metadata and interface have in common.
func (s Spec) mac() string {
	address := net.ParseIP(cmp.Or(append(s.Addresses, "0.0.0.0")...)).To4()
	return net.HardwareAddr{0x52, 0x54, 0x00, address[1], address[2], address[3]}.String()
}

// service answers what machines ask about themselves, as OpenStack does; machine finds the one that asks by its address.
func service(machine func(address string) (Spec, bool)) http.Handler {
	mux := http.NewServeMux()
	serve := func(pattern string, answer func(Spec) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			s, known := machine(host)
			if !known {
				http.Error(w, "no server has the address "+host, http.StatusNotFound)
				return
			}
			switch body := answer(s).(type) {
			case nil:
				http.NotFound(w, r)
			case string:
				fmt.Fprint(w, body)
			default:
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(body)
			}
		})
	}
	serve("GET /openstack", func(Spec) any { return "2018-08-27\nlatest" })
	serve("GET /openstack/{$}", func(Spec) any { return "2018-08-27\nlatest" })
	serve("GET /openstack/{version}/meta_data.json", func(s Spec) any {
		return map[string]any{
			"uuid": s.ID, "name": s.Name, "hostname": s.Name + ".novalocal", "meta": s.Meta, "launch_index": 0,
			"availability_zone": s.Zone, "random_seed": "c2FuZGJveA==",
		}
	})
	serve("GET /openstack/{version}/user_data", func(s Spec) any {
		if s.UserData == "" {
			return nil
		}
		return s.UserData
	})
	serve("GET /openstack/{version}/network_data.json", func(s Spec) any {
		var networks []map[string]any
		for i, address := range s.Addresses {
			networks = append(networks, map[string]any{
				"id": fmt.Sprintf("network%d", i), "type": "ipv4", "link": "eth0", "ip_address": address, "netmask": "255.255.255.255",
			})
		}
		return map[string]any{
			"links":    []any{map[string]any{"id": "eth0", "type": "phy", "mtu": 1500, "ethernet_mac_address": s.mac()}},
			"networks": networks, "services": []any{},
		}
	})
	for _, name := range []string{"vendor_data.json", "vendor_data2.json"} {
		serve("GET /openstack/{version}/"+name, func(Spec) any { return map[string]any{} })
	}
	// OpenStack answers EC2's questions as well, which cloud-init asks.
	ec2 := map[string]func(Spec) string{
		"instance-id":    func(s Spec) string { return s.ID },
		"hostname":       func(s Spec) string { return s.Name + ".novalocal" },
		"local-hostname": func(s Spec) string { return s.Name + ".novalocal" },
		"local-ipv4":     func(s Spec) string { return cmp.Or(append(s.Addresses, "")...) },
	}
	serve("GET /latest/meta-data/{$}", func(Spec) any {
		return strings.Join([]string{"hostname", "instance-id", "local-hostname", "local-ipv4"}, "\n")
	})
	for name, answer := range ec2 {
		serve("GET /latest/meta-data/"+name, func(s Spec) any { return answer(s) })
	}
	return mux
}
