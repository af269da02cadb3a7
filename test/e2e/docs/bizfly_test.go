// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// account is a cloud with one of everything that commands of BizFly Cloud's command line are about. Ids of the reader's stand for those.
type account struct {
	*cloud.Sandbox
	api                                                   *gobizfly.Client
	server, disk, volume, address, image, pool, node, uid string
}

func newAccount(ctx context.Context) *account {
	GinkgoHelper()
	// Which form of a create request the cloud takes is no matter of a page.
	a := &account{Sandbox: cloud.Start(cloud.Options{Modes: []string{"any-form"}})}
	DeferCleanup(a.Close)
	server := a.AddServer(cloud.ServerSpec{Name: "golden-builder"})
	a.server, a.disk = server.ID, server.VolumesAttached[0].ID
	a.volume = a.AddVolume(cloud.VolumeSpec{Name: "data"}).ID
	a.address = a.AddWanIP(a.server, "free")
	Expect(a.address).NotTo(BeEmpty())
	a.MovePort(a.address, "")
	a.image = a.Options().Catalog.Images[a.Options().Region][0].Versions[0].ID
	a.pool = a.AddWorkerPool(cloud.PoolSpec{Name: "apps", Servers: []string{
		a.AddServer(cloud.ServerSpec{Name: "apps-0"}).ID, a.AddServer(cloud.ServerSpec{Name: "apps-1"}).ID,
	}})
	a.uid = a.BKE().ClusterUID
	var err error
	a.api = lo.Must(gobizfly.NewClient(gobizfly.WithAPIURL(a.APIURL), gobizfly.WithRegionName(a.Options().Region)))
	c := a.Credentials()
	token, err := a.api.Token.Init(ctx, &gobizfly.TokenCreateRequest{AuthMethod: "password", Username: c.Email, Password: c.Password, ProjectID: c.ProjectID})
	Expect(err).NotTo(HaveOccurred())
	a.api.SetKeystoneToken(token)
	pool := lo.Must(a.api.KubernetesEngine.GetClusterWorkerPool(ctx, a.uid, a.pool))
	a.node = pool.Nodes[0].ID
	return a
}

// flags are those of a command.
type flags struct{ *flag.FlagSet }

func (f flags) value(name string) string {
	GinkgoHelper()
	known := f.Lookup(name)
	Expect(known).NotTo(BeNil(), name)
	return known.Value.String()
}

// text is the value of a flag, or another one in the place of a value of the reader's.
func (f flags) text(name, readers string) string {
	value := f.value(name)
	return lo.Ternary(value == unknown, readers, value)
}

func (f flags) number(name string) int {
	value, err := strconv.Atoi(lo.CoalesceOrEmpty(f.value(name), "0")) // what is not given is not sent
	Expect(err).NotTo(HaveOccurred())
	return value
}

// sends are the requests of BizFly Cloud's command line, by the client that it uses, too.
var sends = map[string]func(context.Context, *account, flags) error{
	"kubernetes list": func(ctx context.Context, a *account, _ flags) error {
		_, err := a.api.KubernetesEngine.List(ctx, nil)
		return err
	},
	"kubernetes get": func(ctx context.Context, a *account, _ flags) error {
		_, err := a.api.KubernetesEngine.Get(ctx, a.uid)
		return err
	},
	"kubernetes workerpool node delete": func(ctx context.Context, a *account, _ flags) error {
		return a.api.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, a.uid, a.pool, a.node)
	},
	"kubernetes workerpool update": func(ctx context.Context, a *account, f flags) error {
		return a.api.KubernetesEngine.UpdateClusterWorkerPool(ctx, a.uid, a.pool, &gobizfly.UpdateWorkerPoolRequest{
			EnableAutoScaling: f.value("autoscaling") == "true", MinSize: f.number("min-size"), MaxSize: f.number("max-size"),
		})
	},
	"server list": func(ctx context.Context, a *account, _ flags) error {
		_, err := a.api.CloudServer.List(ctx, &gobizfly.ServerListOptions{})
		return err
	},
	"server get": func(ctx context.Context, a *account, _ flags) error {
		_, err := a.api.CloudServer.Get(ctx, a.server)
		return err
	},
	"server create": func(ctx context.Context, a *account, f flags) error {
		medium := f.text("rootdisk-type", "")
		_, err := a.api.CloudServer.Create(ctx, &gobizfly.ServerCreateRequest{
			Name: f.text("name", ""), FlavorName: f.text("flavor", ""), Type: f.text("category", ""), AvailabilityZone: f.text("availability-zone", ""),
			BillingPlan: f.text("billing-plan", ""), SSHKey: f.text("ssh-key", a.Options().Catalog.SSHKeys[0].Name), Quantity: 1,
			RootDisk: &gobizfly.ServerDisk{Size: f.number("rootdisk-size"), Type: &medium},
			OS:       &gobizfly.ServerOS{ID: f.text("image-id", a.image), Type: "image"},
		})
		return err
	},
	"server delete": func(ctx context.Context, a *account, f flags) error {
		disks := lo.Ternary(f.value("delete-rootdisk") == "true", []string{a.disk}, nil)
		_, err := a.api.CloudServer.Delete(ctx, a.server, disks)
		return err
	},
	"server start": func(ctx context.Context, a *account, _ flags) error {
		if _, err := a.api.CloudServer.Stop(ctx, a.server); err != nil {
			return err
		}
		Eventually(func() error {
			_, err := a.api.CloudServer.Start(ctx, a.server)
			return err
		}).Should(Succeed())
		return nil
	},
	"volume list": func(ctx context.Context, a *account, _ flags) error {
		_, err := a.api.CloudServer.Volumes().List(ctx, &gobizfly.VolumeListOptions{})
		return err
	},
	"volume create": func(ctx context.Context, a *account, f flags) error {
		_, err := a.api.CloudServer.Volumes().Create(ctx, &gobizfly.VolumeCreateRequest{
			Name: f.text("name", ""), Size: f.number("size"), VolumeType: f.text("type", ""), VolumeCategory: f.text("category", ""),
			AvailabilityZone: f.text("availability-zone", ""), BillingPlan: f.text("billing-plan", ""),
		})
		return err
	},
	"volume delete": func(ctx context.Context, a *account, _ flags) error {
		return a.api.CloudServer.Volumes().Delete(ctx, a.volume)
	},
	"snapshot create": func(ctx context.Context, a *account, f flags) error {
		_, err := a.api.CloudServer.Snapshots().Create(ctx, &gobizfly.SnapshotCreateRequest{Name: f.text("name", ""), VolumeID: a.volume})
		return err
	},
	"wan-ip delete": func(ctx context.Context, a *account, _ flags) error {
		return a.api.CloudServer.PublicNetworkInterfaces().Delete(ctx, a.address)
	},
}

var _ = Describe("The commands of BizFly Cloud's command line", func() {
	It("should send what the cloud accepts, those of pages, samples and hints alike", func(ctx SpecContext) {
		pages, hinted := documented()
		sent := map[string]bool{}
		for _, c := range append(pages, hinted...) {
			line := strings.Join(c.words, " ")
			if c.words[0] != "bizfly" || sent[line] {
				continue
			}
			sent[line] = true
			name, set, err := parsedBizfly(c)
			Expect(err).NotTo(HaveOccurred(), c.String())
			Expect(sends).To(HaveKey(name), "%s: nothing says what it sends", c)
			Expect(sends[name](ctx, newAccount(ctx), flags{set})).To(Succeed(), c.String())
		}
		Expect(len(sent)).To(BeNumerically(">", 8), fmt.Sprint(lo.Keys(sent)))
	})
})
