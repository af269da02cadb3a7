// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// firewall is the id of a firewall of the catalog.
func (w *world) firewall(name string) string {
	GinkgoHelper()
	found, ok := lo.Find(w.box.Options().Catalog.Firewalls["HN"], func(f cloud.Firewall) bool { return f.Name == name })
	Expect(ok).To(BeTrue())
	return found.ID
}

// volumeType is the first name of a volume type with the medium.
func (w *world) volumeType(category, zone, medium string) string {
	GinkgoHelper()
	names := lo.FilterMap(w.box.Options().Catalog.VolumeTypes["HN"], func(t cloud.VolumeType, _ int) (string, bool) {
		return t.Name, t.Category == category && slices.Contains(t.AvailabilityZones, zone) && strings.Contains(t.Name, medium)
	})
	Expect(names).ToNot(BeEmpty())
	slices.Sort(names)
	return names[0]
}

// groups are the firewalls of each port of a server.
func (w *world) groups(serverID string) [][]string {
	state := w.box.State()
	ports := append(state.NetworkInterfaces, lo.Map(state.WanIPs, func(ip cloud.WanIP, _ int) cloud.NetworkInterface { return ip.NetworkInterface })...)
	return lo.FilterMap(ports, func(p cloud.NetworkInterface, _ int) ([]string, bool) {
		return p.SecurityGroups, p.AttachedServer.ID == serverID
	})
}

// attach attaches a volume over the API, as the block storage driver does, and returns the status.
func (w *world) attach(volumeID, serverID string) int {
	GinkgoHelper()
	login, err := json.Marshal(map[string]string{
		"auth_method": "password", "username": w.box.Credentials().Email, "password": w.box.Credentials().Password, "project_id": w.box.Credentials().ProjectID,
	})
	Expect(err).NotTo(HaveOccurred())
	var token struct {
		Token string `json:"token"`
	}
	post := func(path string, body []byte, into any) int {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.box.URL+path, bytes.NewReader(body))
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("X-Auth-Token", token.Token)
		request.Header.Set("X-Project-ID", w.box.Credentials().ProjectID)
		response := lo.Must(http.DefaultClient.Do(request))
		defer func() { _ = response.Body.Close() }()
		if into != nil {
			Expect(json.NewDecoder(response.Body).Decode(into)).To(Succeed())
		}
		return response.StatusCode
	}
	Expect(post("/api/token", login, &token)).To(Equal(200))
	body := lo.Must(json.Marshal(map[string]string{"type": "attach", "instance_uuid": serverID}))
	return post("/iaas-cloud/api/volumes/"+volumeID+"/action", body, nil)
}
