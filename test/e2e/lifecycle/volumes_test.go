// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/csi"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
)

// driver starts the stand-in for the block storage driver and ends it with the spec.
func driver(class string) *csi.StandIn {
	GinkgoHelper()
	values := env.Sandbox().Env()
	standIn := &csi.StandIn{
		Kube: env.Client(), BillingPlan: cloud.PlanOnDemand,
		// A client for each pass: gobizfly's own do not survive a token that has expired.
		Cloud: func(ctx context.Context) (*gobizfly.Client, error) {
			client, err := gobizfly.NewClient(gobizfly.WithAPIURL(values["BIZFLY_CLOUD_API_URL"]), gobizfly.WithRegionName(values["BIZFLY_CLOUD_REGION"]),
				gobizfly.WithHTTPClient(&http.Client{Timeout: 10 * time.Second}))
			if err != nil {
				return nil, err
			}
			token, err := client.Token.Init(ctx, &gobizfly.TokenCreateRequest{
				AuthMethod: "application_credential", AppCredID: values["BIZFLY_CLOUD_APP_CRED_ID"], AppCredSecret: values["BIZFLY_CLOUD_APP_CRED_SECRET"],
			})
			if err != nil {
				return nil, fmt.Errorf("logging in: %w", err)
			}
			client.SetKeystoneToken(token)
			return client, nil
		},
	}
	Expect(standIn.Install(ctx, class)).To(Succeed())
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		standIn.Run(running)
	}()
	DeferCleanup(func() {
		stop()
		<-done
		Expect(env.Client().Delete(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}})).To(Succeed())
	})
	return standIn
}

// driversVolumes are the volumes that the driver has made.
func driversVolumes(g Gomega) []cloud.Volume {
	return lo.Filter(e2e.Truth(g, env).Volumes, func(v cloud.Volume, _ int) bool { return len(v.Name) > 4 && v.Name[:4] == "pvc-" })
}

func volumeClaim(class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: unique("data")},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}},
		},
	}
}

// mounting lets pods mount the claim's volume.
func mounting(claim *corev1.PersistentVolumeClaim) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

var _ = Describe("Beside the block storage driver", func() {
	It("should keep a volume in its zone and its pod with it, and never delete it with a server", func() {
		standIn := driver("ssd")
		pool := readyPool()
		claim := volumeClaim("ssd")
		create(claim)
		database := deployment(pool, 1, mounting(claim))
		create(database)
		attachedTo := func(g Gomega) (cloud.Volume, string) {
			g.Expect(standIn.Err()).NotTo(HaveOccurred())
			volumes := driversVolumes(g)
			g.Expect(volumes).To(HaveLen(1))
			g.Expect(volumes[0].Attachments).To(HaveLen(1))
			return volumes[0], volumes[0].Attachments[0].ServerID
		}
		var volume cloud.Volume
		var first string
		Eventually(func(g Gomega) {
			g.Expect(running(g, database)).To(HaveLen(1))
			volume, first = attachedTo(g)
		}).Should(Succeed())

		By("replacing its node")
		node := &corev1.Node{}
		Expect(env.Client().Get(ctx, types.NamespacedName{Name: running(Default, database)[0].Spec.NodeName}, node)).To(Succeed())
		Expect(node.Labels).To(HaveKeyWithValue(csi.TopologyKey, volume.AvailabilityZone))
		old := claims(Default, pool)[0]
		Expect(env.Client().Delete(ctx, &old)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(running(g, database)).To(HaveLen(1))
			now, second := attachedTo(g)
			g.Expect(now.ID).To(Equal(volume.ID), "the volume is the same")
			g.Expect(second).NotTo(Equal(first), "and attached to another server")
			g.Expect(servers(g, pool)).To(HaveLen(1))
			g.Expect(servers(g, pool)[0].AvailabilityZone).To(Equal(volume.AvailabilityZone), "in its zone")
		}).WithTimeout(2 * patience).Should(Succeed())

		By("removing the server while the volume's claim stays")
		Expect(env.Client().Delete(ctx, database)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(servers(g, pool)).To(BeEmpty())
			g.Expect(driversVolumes(g)).To(HaveLen(1))
			g.Expect(e2e.Truth(g, env).Volumes).To(HaveLen(1), "no other disk is left")
		}).WithTimeout(2 * patience).Should(Succeed())

		By("removing the claim")
		Expect(env.Client().Delete(ctx, claim)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should keep a node while a volume is created for its pod, however long that takes", func() {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: unique("never")}, Provisioner: "example.com/never",
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		}
		create(class)
		claim := volumeClaim(class.Name)
		create(claim)
		waiting, served := readyPool(), readyPool()
		create(deployment(waiting, 1, mounting(claim)))
		app := deployment(served, 1)
		create(app)
		var node string
		Eventually(func(g Gomega) {
			g.Expect(running(g, app)).To(HaveLen(1))
			stored := &corev1.PersistentVolumeClaim{}
			g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(claim), stored)).To(Succeed())
			node = stored.Annotations["volume.kubernetes.io/selected-node"]
			g.Expect(node).NotTo(BeEmpty())
		}).Should(Succeed())

		By("waiting until the other pool's node is deleted, which becomes empty later")
		Expect(env.Client().Delete(ctx, app)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(claims(g, served)).To(BeEmpty()) }).Should(Succeed())
		Expect(claims(Default, waiting)).To(ConsistOf(And(HaveField("Status.NodeName", node), HaveField("DeletionTimestamp", BeNil()))))
	})
})
