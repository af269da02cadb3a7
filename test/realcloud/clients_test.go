// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// askDefaults asks what other clients than ours meet, and for which the sandbox has an option each: the networks and
// firewalls that no request named, the types of volumes, the plan of a volume that names none, and how application credentials log in.
func (r *run) askDefaults(ctx context.Context, class *v1alpha1.BizflyNodeClass, server *instance.Instance, zone string) {
	GinkgoHelper()
	named := lo.Map(class.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID })
	ports, err := r.api.ListNetworkInterfaces(ctx)
	Expect(err).NotTo(HaveOccurred())
	ports = lo.Filter(ports, func(p *gobizfly.NetworkInterface, _ int) bool { return p.DeviceID == server.ID })
	r.behaves("unnamed-networks", "whether a server is in private networks that its create request does not name",
		lo.SomeBy(ports, func(p *gobizfly.NetworkInterface) bool {
			return p.Type == "LAN" && !lo.Contains(named, p.NetworkID)
		}))
	if firewalls := lo.SomeBy(ports, func(p *gobizfly.NetworkInterface) bool { return len(p.SecurityGroups) > 0 }); len(class.Status.Firewalls) == 0 {
		r.behaves("unnamed-firewall", "whether the ports of a server that names no firewall have one", firewalls)
	} else {
		r.find("named-firewall", "whether the ports of a server that names the firewalls of a pool's servers have one", firewalls)
	}

	snapshot, err := r.Catalog.Snapshot()
	Expect(err).NotTo(HaveOccurred())
	volumes, err := r.api.ListVolumes(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, volume := range volumes {
		if strings.HasPrefix(volume.Name, server.Name) {
			r.behaves("volume-type-form", "whether volumes name their type (PREMIUM-HDD1) or describe it (PREMIUM HDD)", formOf(volume.VolumeType, snapshot.VolumeTypes))
		}
	}
	r.askVolume(ctx, zone)
	r.askLogin(ctx)
}

func formOf(written string, types []*gobizfly.VolumeType) string {
	switch {
	case lo.SomeBy(types, func(t *gobizfly.VolumeType) bool { return t.Name == written }):
		return "name"
	case lo.SomeBy(types, func(t *gobizfly.VolumeType) bool { return t.Type == written }):
		return "description"
	}
	return "neither"
}

// askVolume creates the smallest volume, as the CSI driver would, and deletes it. Its plan may be a prepaid one, so it is only done
// where that was allowed.
func (r *run) askVolume(ctx context.Context, zone string) {
	GinkgoHelper()
	if !r.sandbox && os.Getenv("E2E_CLOUD_VOLUME") == "" {
		r.find("volume-not-asked", "why the plan of a volume that names none is not known", "it may be prepaid for a month: set E2E_CLOUD_VOLUME=true")
		return
	}
	client := r.plain(ctx)
	made, err := client.CloudServer.Volumes().Create(ctx, &gobizfly.VolumeCreateRequest{
		Name: r.volumeName(), Size: 10, VolumeType: "HDD", VolumeCategory: "premium", AvailabilityZone: zone,
	})
	r.behaves("volume-medium", "whether HDD alone is a type of POST /volumes", err == nil)
	if err != nil {
		return
	}
	r.behaves("volume-plan", "the billing plan of a volume that names none", made.BillingPlan)
	Eventually(func() error { return client.CloudServer.Volumes().Delete(ctx, made.ID) }).WithContext(ctx).Should(Succeed())
}

// volumeName is of the form that the run's disks have, so that the removal knows it.
func (r *run) volumeName() string { return r.claim() + "-volume_datadisk" }

// plain is the client library as others use it, through the recorder.
func (r *run) plain(ctx context.Context) *gobizfly.Client {
	GinkgoHelper()
	client, err := gobizfly.NewClient(gobizfly.WithAPIURL(r.endpoint()), gobizfly.WithRegionName(r.client.Region),
		gobizfly.WithHTTPClient(&http.Client{Transport: r.recorder, Timeout: time.Minute}))
	Expect(err).NotTo(HaveOccurred())
	login := &gobizfly.TokenCreateRequest{AuthMethod: "password", Username: r.client.Email, Password: r.client.Password, ProjectID: r.client.ProjectID}
	if r.client.AuthMethod == bizfly.AuthMethodAppCredential {
		login = &gobizfly.TokenCreateRequest{
			AuthMethod: "application_credential", AppCredID: r.client.AppCredID, AppCredSecret: r.client.AppCredSecret, ProjectID: r.client.ProjectID,
		}
	}
	token, err := client.Token.Init(ctx, login)
	Expect(err).NotTo(HaveOccurred())
	client.SetKeystoneToken(token)
	return client
}

func (r *run) endpoint() string { return lo.CoalesceOrEmpty(r.client.APIURL, bizfly.DefaultAPIURL) }

// askLogin tries the names under which clients and documentation send application credentials. The answers are not
// recorded: they hold tokens.
func (r *run) askLogin(ctx context.Context) {
	GinkgoHelper()
	if r.client.AppCredSecret == "" {
		r.find("login-not-asked", "why it is not known how application credentials log in", "no application credential is set")
		return
	}
	accepted := []string{}
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, method := range []string{"application_credential", "app_credential"} {
		for _, prefix := range []string{"credential_", "application_credential_", "app_credential_"} {
			body, err := json.Marshal(map[string]string{
				"auth_method": method, prefix + "id": r.client.AppCredID, prefix + "secret": r.client.AppCredSecret, "project_id": r.client.ProjectID,
			})
			Expect(err).NotTo(HaveOccurred())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.endpoint(), "/")+"/token", bytes.NewReader(body))
			Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", "application/json")
			response, err := client.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			if response.StatusCode == http.StatusOK {
				accepted = append(accepted, method+" with "+prefix+"id and "+prefix+"secret")
			}
		}
	}
	r.behaves("application-credential-login", "the names under which application credentials log in", accepted)
}
