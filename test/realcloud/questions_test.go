// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Questions whose answers decide whether nodes could be replaced, launched in vain or kept again and again.

// shortName asks whether create requests may name flavors without the family, with an unknown image: nothing
// is built. The same answer as to the full name means that the name was understood.
func (r *run) shortName(ctx context.Context, class *v1alpha1.BizflyNodeClass, o offer, full error) {
	GinkgoHelper()
	_, short, found := strings.Cut(o.flavor, ".")
	if !found {
		r.find("short-flavor-name", "the outcome of a create request with a flavor's name without the family", "it has none")
		return
	}
	o.flavor = short
	_, _, err := r.launch(ctx, class, o)
	Expect(err).To(HaveOccurred())
	r.find("short-flavor-name", "the outcome of a create request with a flavor's name without the family, and an unknown image", said(err))
	r.find("short-flavor-name-alike", "whether the answer is the same as with the full name", said(err) == said(full))
	GinkgoWriter.Printf("flavor %s: %s\n", short, err)
}

// oldFlavors asks by which names flavors without a generation are known, one of each family: with an unknown image, so that nothing is
// built. A name that is known is rejected for the image, another one, and a closed flavor, for itself. It is asked once the form of
// volume types is known, so that these are not to blame.
func (r *run) oldFlavors(ctx context.Context, class *v1alpha1.BizflyNodeClass, o offer) {
	GinkgoHelper()
	name, taskID := r.accepted() // later questions are about the launch
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.name, r.taskID = name, taskID
	}()
	class = class.DeepCopy()
	class.Status.Images[0].ID = string(uuid.NewUUID())
	snapshot, err := r.Catalog.Snapshot()
	Expect(err).NotTo(HaveOccurred())
	answers := map[string]string{}
	defer func() {
		r.find("old-flavor-names", "what create requests of old flavors with an unknown image are rejected for, by the name", answers)
	}()
	ask := func(name string) {
		o.flavor = name
		class.Generation++ // what was remembered of the last one must not change this one
		server, _, err := r.launch(ctx, class, o)
		answers[name] = said(err) + ", " + lo.Ternary(bizfly.ScopeOf(err) == bizfly.ScopeNodeClass, "for the image", "for the flavor, or without a word")
		if err == nil {
			// The removal at the end asks again.
			_ = r.Instances.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: server.Name})
		}
		Expect(err).To(HaveOccurred(), "a server of an image that does not exist")
		GinkgoWriter.Printf("flavor %s: %s\n", name, err)
	}
	for _, family := range []string{"nix.", "_basic", "_enterprise", "_dedicated"} {
		of, found := lo.Find(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse) bool {
			return f.Generation.Code == "" && (strings.HasPrefix(f.Name, family) || strings.HasSuffix(f.Name, family))
		})
		// The names of a family that was launched are known.
		if _, known := r.Instances.Forms().Accepted()["flavor."+strings.Trim(family, "._")]; !found || known {
			continue
		}
		o.category, _ = r.Flavors.Category(of.Name)
		o.cpu, o.memoryMiB = of.VCPUs, of.RAM
		ask(of.Name)
		ask(strings.TrimSuffix(strings.TrimPrefix(of.Name, family), family))
	}
}

// networksAdded asks whether the cloud gives a server private networks that were not requested.
func (r *run) networksAdded(ctx context.Context, key, when string, class *v1alpha1.BizflyNodeClass, server string) {
	GinkgoHelper()
	ports, err := r.api.ListNetworkInterfaces(ctx)
	Expect(err).NotTo(HaveOccurred())
	of := lo.Filter(ports, func(p *gobizfly.NetworkInterface, _ int) bool {
		return lo.CoalesceOrEmpty(p.AttachedServer.ID, p.DeviceID) == server
	})
	ordered := lo.Map(class.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID })
	private := lo.FilterMap(of, func(p *gobizfly.NetworkInterface, _ int) (string, bool) { return p.NetworkID, p.Type == "LAN" })
	r.behaves(key, "how many private networks the server was in that were not requested, "+when, len(lo.Uniq(lo.Without(private, ordered...))))
	r.behaves(key+"-unknown", "how many of its interfaces were neither public nor private, "+when,
		lo.CountBy(of, func(p *gobizfly.NetworkInterface) bool { return p.Type != "LAN" && p.Type != "WAN" }))
}

func workerImages(versions []gobizfly.ControllerVersion) map[string]string {
	return lo.SliceToMap(versions, func(v gobizfly.ControllerVersion) (string, string) { return v.ID, v.WorkerImageID })
}

// workerImagesAgain asks whether each read of the Kubernetes versions names the same worker images.
func (r *run) workerImagesAgain(ctx context.Context) {
	GinkgoHelper()
	differing := 0
	for range 5 {
		versions, err := r.api.ListKubernetesVersions(ctx)
		Expect(err).NotTo(HaveOccurred())
		if len(r.workerImages) > 0 && !maps.Equal(workerImages(versions), r.workerImages) {
			differing++
		}
	}
	r.find("worker-images-differing", "how many of five reads of the worker images differed from that of the beginning", differing)
}

// planned asks whether the node offers what is planned of its flavor before any node of it was seen.
func (r *run) planned(class *v1alpha1.BizflyNodeClass, node *corev1.Node, o offer) {
	reserved := r.Bootstrap.Reservations(class, o.cpu, o.memoryMiB, rootDiskGiB<<30)
	memory := resource.NewQuantity(int64(float64(int64(o.memoryMiB)<<20)*(100-100*options.Defaults().MemoryOverheadPercent)/100), resource.BinarySI)
	cpu := resource.NewQuantity(int64(o.cpu), resource.DecimalSI)
	memory.Sub(*reserved.Kept.Memory())
	cpu.Sub(*reserved.Kept.Cpu())
	r.find("planned", "what is planned of a node before one was seen",
		map[string]string{"cpu": cpu.String(), "memory": memory.String(), "pods": resource.NewQuantity(int64(reserved.MaxPods), resource.DecimalSI).String()})
	offered := node.Status.Allocatable
	r.behaves("planned-fits", "whether the node offers at least the CPU, memory and pods that are planned",
		offered.Cpu().Cmp(*cpu) >= 0 && offered.Memory().Cmp(*memory) >= 0 && offered.Pods().Value() >= int64(reserved.MaxPods))
}

// dataDisk asks what the data disk of a server that runs is called, when it comes, and as which device.
func (r *run) dataDisk(ctx context.Context, server *instance.Instance) {
	GinkgoHelper()
	const question = "what the data disk of a server is called, how many seconds after the server ran it was there, and as which device"
	for began := time.Now(); time.Since(began) < 3*time.Minute && ctx.Err() == nil; time.Sleep(r.poll) {
		volumes, err := r.api.ListVolumes(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, volume := range volumes {
			at, found := lo.Find(volume.Attachments, func(a gobizfly.VolumeAttachment) bool { return a.ServerID == server.ID })
			if found && volume.AttachedType != "rootdisk" {
				r.find("data-disk", question, map[string]any{"name": strings.Replace(volume.Name, server.Name, "<server>", 1),
					"seconds": int(time.Since(began).Seconds()), "device": at.Device})
				return
			}
		}
	}
	r.find("data-disk", question, "none within 3 minutes")
}

func (r *run) snapshotName() string { return r.claim() + "-snapshot" }

// obstruction is a snapshot of the root disk, which may keep that disk from being deleted.
type obstruction struct {
	run      *run
	id, disk string
	fate     string
	// since is when the snapshot was requested.
	since time.Time
}

// obstruct deletes a disk and releases an address that are in use, which must leave both, and
// takes a snapshot of the disk. It is the last that is done with the server.
func (r *run) obstruct(ctx context.Context, disk string, ports []string) *obstruction {
	GinkgoHelper()
	r.behaves("disk-in-use", "the answer to deleting the root disk of a running server", said(r.api.DeleteVolume(ctx, disk)))
	if len(ports) > 0 {
		status, err := r.release(ctx, "/network-interfaces/"+ports[0])
		Expect(err).NotTo(HaveOccurred())
		r.find("port-in-use", "the answer to deleting a network interface of a running server",
			lo.Ternary(status < 300, "accepted", fmt.Sprintf("rejected with %d", status)))
	}
	o := &obstruction{run: r, disk: disk, fate: "deleted with the server", since: time.Now()}
	status, body, err := r.recorder.Send(ctx, http.MethodPost, "cloud_server", "/snapshots",
		map[string]any{"name": r.snapshotName(), "volume_id": disk, "force": true})
	Expect(err).NotTo(HaveOccurred())
	var made struct {
		ID string `json:"id"`
	}
	if status >= 300 || json.Unmarshal(body, &made) != nil || made.ID == "" {
		o.fate = "not asked, since no snapshot could be made"
	}
	o.id = made.ID
	return o
}

// look is asked while the server is deleted, with the answer to that: a rejection may be because of the snapshot, and a disk that outlives
// the server is asked for once. Then the snapshot is removed.
func (o *obstruction) look(ctx context.Context, server string, err error) {
	GinkgoHelper()
	if o.id == "" {
		return
	}
	if rejection := (*bizfly.APIError)(nil); errors.As(err, &rejection) && rejection.Status >= 400 && rejection.Status < 500 &&
		rejection.Status != http.StatusTooManyRequests {
		o.fate = "keeps the server: " + said(err)
		GinkgoWriter.Printf("deleting the server while its disk has a snapshot: %s\n", err)
		o.remove(ctx)
		return
	}
	if _, err := o.run.api.GetServer(ctx, server); !bizfly.IsNotFound(err) {
		// A conflict is no error of a deletion: the request is repeated, and only its duration shows it.
		if limit := o.run.patience / 3; time.Since(o.since) > limit {
			o.fate = fmt.Sprintf("keeps the server for more than %s", limit)
			o.remove(ctx)
		}
		return
	}
	volumes, err := o.run.api.ListVolumes(ctx)
	if err != nil || !lo.ContainsBy(volumes, func(v *gobizfly.Volume) bool { return v.ID == o.disk }) {
		return
	}
	if err = o.run.api.DeleteVolume(ctx, o.disk); err != nil && !bizfly.IsNotFound(err) {
		o.fate = "kept: " + said(err)
		var answer *bizfly.APIError
		Expect(errors.As(err, &answer)).To(BeTrue(), "%v", err)
	}
	o.remove(ctx)
}

func (o *obstruction) remove(ctx context.Context) {
	GinkgoHelper()
	_, _, err := o.run.recorder.Send(ctx, http.MethodDelete, "cloud_server", "/snapshots/"+o.id, nil)
	Expect(err).NotTo(HaveOccurred())
	o.id = ""
}

// finish writes down what became of the disk.
func (o *obstruction) finish(ctx context.Context) {
	GinkgoHelper()
	if o.id != "" {
		o.remove(ctx)
	}
	o.run.find("disk-with-snapshot", "what becomes of the root disk of a deleted server while a snapshot of it exists", o.fate)
}
