// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// remains are what a run has made and what is still there.
type remains struct {
	servers []*gobizfly.Server
	// disks are those of its servers, in any state.
	disks []*gobizfly.Volume
	// ports are network interfaces and addresses of its servers.
	ports []*gobizfly.NetworkInterface
	// snapshots are those of its root disks.
	snapshots []*gobizfly.Snapshot
}

func (m remains) none() bool { return len(m.servers)+len(m.disks)+len(m.ports)+len(m.snapshots) == 0 }

func (m remains) String() string {
	return fmt.Sprintf("servers %v, disks %v, network interfaces %v, %d snapshots",
		lo.Map(m.servers, func(s *gobizfly.Server, _ int) string { return s.Name + " (" + s.ID + ", " + s.Status + ")" }),
		lo.Map(m.disks, func(v *gobizfly.Volume, _ int) string { return v.Name + " (" + v.ID + ", " + v.Status + ")" }),
		lo.Map(m.ports, func(p *gobizfly.NetworkInterface, _ int) string { return p.ID }), len(m.snapshots))
}

// ours reports whether a server is this run's: by the id that only this run has ever written anywhere.
func (r *run) ours(server *gobizfly.Server) bool {
	return server.Metadata[v1alpha1.MetadataClusterUID] == r.id
}

// leaving reports whether a server is on its way out.
func leaving(server *gobizfly.Server) bool { return strings.Contains(server.Status, "DELET") }

// left reads what is still there. With an error it is what the lists that could be read show.
func (r *run) left(ctx context.Context) (remains, error) {
	var m remains
	var errs []error
	failed := func(of string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("listing %s: %w", of, err))
		}
	}
	servers, err := r.api.ListServers(ctx)
	failed("servers", err)
	volumes, err := r.api.ListVolumes(ctx)
	failed("volumes", err)
	ports, err := r.api.ListNetworkInterfaces(ctx)
	failed("network interfaces", err)
	snapshots, err := r.api.ListSnapshots(ctx)
	failed("snapshots", err)
	// A name of this run holds its id twice: as the claim's name, and hashed.
	name := func(s string) bool { return strings.HasPrefix(s, r.claim()+"-") }
	m.snapshots = lo.Filter(snapshots, func(s *gobizfly.Snapshot, _ int) bool { return s.Name == r.snapshotName() })
	m.servers = lo.Filter(servers, func(s *gobizfly.Server, _ int) bool { return r.ours(s) })
	for _, server := range m.servers {
		r.forget(server.Metadata[v1alpha1.MetadataName])
	}
	m.disks = lo.Filter(volumes, func(v *gobizfly.Volume, _ int) bool {
		return name(v.Name) && (strings.HasSuffix(v.Name, "_rootdisk") || strings.Contains(v.Name, "_datadisk"))
	})
	// What was seen on one of its servers stays its own after the server is deleted; no other server has it while it is free.
	m.ports = lo.Filter(ports, func(p *gobizfly.NetworkInterface, _ int) bool {
		on := lo.CoalesceOrEmpty(p.DeviceID, p.AttachedServer.ID)
		if name(p.AttachedServer.Name) || on == "" && name(p.Name) || lo.ContainsBy(m.servers, func(s *gobizfly.Server) bool { return s.ID == on }) {
			r.seenPorts[p.ID] = on
		}
		owner, ours := r.seenPorts[p.ID]
		return ours && (on == "" || on == owner)
	})
	return m, errors.Join(errs...)
}

// building returns the create requests whose tasks are not ready, of which a server that no list shows yet may come: the cloud may hide
// servers that it builds.
func (r *run) building(ctx context.Context) (names []string, err error) {
	for name, taskID := range r.awaited() {
		if taskID == "" {
			continue
		}
		task, err := r.api.GetTask(ctx, taskID)
		switch {
		case bizfly.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading the task of %s: %w", name, err)
		case !task.Ready:
			names = append(names, name)
		case task.Failure != nil:
			r.forget(name)
		}
	}
	return names, nil
}

// deleteLeftovers removes what is left of the run, and nothing else, until nothing is and no server can come any more, or the context ends.
func (r *run) deleteLeftovers(ctx context.Context) error {
	var m remains
	var empty time.Time // since when nothing was listed
	for {
		// The lists begin after the tasks were read: what was built by then is in them.
		building, taskErr := r.building(ctx)
		var err error
		m, err = r.left(ctx)
		err = errors.Join(taskErr, err)
		switch {
		case err != nil || len(building) > 0 || !m.none():
			empty = time.Time{}
			// What one list or task does not show keeps nothing else from being removed.
			err = errors.Join(err, r.remove(ctx, m))
		case empty.IsZero():
			empty = time.Now()
		}
		if awaited := r.awaited(); !empty.IsZero() && (len(awaited) == 0 || time.Since(empty) >= r.quiet) {
			for name := range awaited {
				r.forget(name)
			}
			return r.removeNodes(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("of run %s this is left: %s, and is being built: %q; `make realcloud E2E_CLOUD_SWEEP=%s` tries again: %w",
				r.id, m, building, r.key(), errors.Join(err, ctx.Err()))
		case <-time.After(r.poll):
		}
	}
}

// remove asks the cloud to delete what is left. What cannot be deleted now is asked for again by the next pass.
func (r *run) remove(ctx context.Context, m remains) error {
	var errs []error
	for _, server := range m.servers {
		if leaving(server) {
			continue
		}
		disks := lo.FilterMap(server.AttachedVolumes, func(v gobizfly.AttachedVolume, _ int) (string, bool) {
			return v.ID, !strings.HasPrefix(v.Name, "pvc-") // a volume of pods is not the run's, whatever mounted it here
		})
		if err := r.api.DeleteServer(ctx, server.ID, disks); err != nil && !bizfly.IsNotFound(err) && !bizfly.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting server %s: %w", server.Name, err))
		}
	}
	for _, snapshot := range m.snapshots {
		if status, _, err := r.recorder.Send(ctx, http.MethodDelete, "cloud_server", "/snapshots/"+snapshot.ID, nil); err != nil || status >= 300 && status != 404 &&
			status != 409 {
			errs = append(errs, fmt.Errorf("deleting snapshot %s: %w", snapshot.Name, cmp.Or(err, fmt.Errorf("status %d", status))))
		}
	}
	for _, disk := range m.disks {
		if len(disk.Attachments) > 0 || disk.Status == "deleting" {
			continue // it is deleted with its server, or is free later
		}
		if err := r.api.DeleteVolume(ctx, disk.ID); err != nil && !bizfly.IsNotFound(err) && !bizfly.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting disk %s: %w", disk.Name, err))
		}
	}
	for _, port := range m.ports {
		if port.DeviceID != "" || port.AttachedServer.ID != "" {
			continue // the cloud is still taking the server apart
		}
		status, err := r.release(ctx, lo.Ternary(port.Type == "WAN", "/wanips/", "/network-interfaces/")+port.ID)
		if err != nil || status >= 300 && status != 404 && status != 409 {
			errs = append(errs, fmt.Errorf("releasing network interface %s: %w", port.ID, cmp.Or(err, fmt.Errorf("status %d", status))))
		}
	}
	return errors.Join(errs...)
}

// portsLeft asks what becomes of the network interfaces and addresses of a deleted server: which are still there after a while. A free
// address is charged.
func (r *run) portsLeft(ctx context.Context) {
	GinkgoHelper()
	var m remains
	for range 20 {
		m = lo.Must(r.left(ctx))
		if len(m.ports) == 0 {
			break
		}
		time.Sleep(r.poll)
	}
	r.behaves("ports-after-delete", "how many network interfaces of a deleted server are still there a minute later, by type",
		lo.CountValuesBy(m.ports, func(p *gobizfly.NetworkInterface) string { return cmp.Or(p.Type, "none") }))
}

// release sends the request to delete an address or a network interface, which the controller never does.
func (r *run) release(ctx context.Context, path string) (status int, err error) {
	status, _, err = r.recorder.Send(ctx, http.MethodDelete, "cloud_server", path, nil)
	return status, err
}

// removeNodes removes the Nodes of the run's servers, which the cloud controller manager may be slow to do.
func (r *run) removeNodes(ctx context.Context) error {
	if r.kube == nil {
		return nil
	}
	nodes, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; strings.HasPrefix(node.Name, r.claim()+"-") {
			if _, ours := providerid.Parse(node.Spec.ProviderID); !ours && node.Spec.ProviderID != "" {
				continue
			}
			if err := r.kube.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting node %s: %w", node.Name, err)
			}
		}
	}
	return nil
}

var _ = Describe("Deleting leftovers", func() {
	It("should remove what a run that was killed has made, and nothing of another", func(ctx SpecContext) {
		if !contact.sandbox {
			Skip("two more servers would cost money: this is for the sandbox")
		}
		died, other := launched(ctx), launched(ctx)
		DeferCleanup(func(ctx SpecContext) { Expect(other.deleteLeftovers(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))

		// The cleanup knows the id of the run and nothing else.
		s := contact.settings
		s.leftoversOf = died.id
		another, err := newRun(s)
		Expect(err).NotTo(HaveOccurred())
		Expect(another.deleteLeftovers(ctx)).To(Succeed())
		left, err := died.left(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(left.none()).To(BeTrue(), "left: %s", left)
		left, err = other.left(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(left.servers).To(HaveLen(1))
		Expect(left.ports).NotTo(BeEmpty())
	}, SpecTimeout(3*time.Minute))
})

// launched is another run, with a server.
func launched(ctx context.Context) *run {
	GinkgoHelper()
	r, err := newRun(contact.settings)
	Expect(err).NotTo(HaveOccurred())
	launchedBy(ctx, r)
	return r
}

// launchedBy is the run's server.
func launchedBy(ctx context.Context, r *run) *instance.Instance {
	GinkgoHelper()
	Expect(r.Catalog.Refresh(ctx)).To(Succeed())
	offers, err := r.offerings()
	Expect(err).NotTo(HaveOccurred())
	class, err := r.nodeClass(ctx)
	Expect(err).NotTo(HaveOccurred())
	server, _, err := r.launch(ctx, class, offers[0])
	Expect(err).NotTo(HaveOccurred())
	return server
}
