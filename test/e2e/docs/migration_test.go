// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// The pages on migration are rehearsals: their commands move a workload from the nodes of another autoscaler to Karpenter's
// and back, and the cloud is compared afterwards.

const (
	// poolName is the label of the nodes of a pool.
	poolName = "bke.bizflycloud.vn/pool-name"

	// The names are those of the older provider's published manifests.
	olderNamespace, olderDeployment = "karpenter", "karpenter"
	olderGroup                      = "karpenter.bizflycloud.com"
	// olderMetadata marks the servers of the older provider.
	olderMetadata = "karpenter-managed"
)

// createNodes creates two nodes of a BKE pool as far as the scheduler sees them; KWOK keeps them alive. The providerIDs may be
// empty.
func (s *session) createNodes(ctx context.Context, pool string, labels map[string]string, providerIDs ...string) {
	GinkgoHelper()
	for i, zone := range []string{"HN1", "HN2"} {
		name := fmt.Sprintf("%s-%d", pool, i)
		capacity := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		Expect(s.env.Client().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: lo.Assign(map[string]string{
				"sandbox.bizflycloud.vn/alive": "true", poolName: pool,
				corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}, labels)},
			Spec:   corev1.NodeSpec{ProviderID: lo.NthOr(providerIDs, i, "")},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.35.4"}},
		})).To(Succeed())
	}
}

// createPool creates a BKE pool of two nodes as the cloud knows it, too, which scales by itself: its servers have the metadata by which
// nodes join.
func (s *session) createPool(ctx context.Context, pool string, minSize, maxSize int, labels map[string]string) {
	GinkgoHelper()
	variables := s.env.Sandbox().Env()
	servers, providerIDs := make([]string, 2), make([]string, 2)
	for i, zone := range []string{"HN1", "HN2"} {
		spec := cloud.ServerSpec{Name: fmt.Sprintf("%s-%d", pool, i), Zone: zone, Metadata: map[string]string{
			"bke_cluster_id": variables["BKE_CLUSTER_ID"], "bke_cluster_token": variables["BKE_CLUSTER_TOKEN"],
			"bke_join_endpoint": variables["BKE_JOIN_ENDPOINT"], "bke_log_endpoint": variables["BKE_LOG_ENDPOINT"],
		}}
		server := cloud.Server{}
		if machines {
			server = lo.Must(s.env.AddNode(ctx, spec, lo.Assign(map[string]string{poolName: pool}, labels)))
		} else {
			Expect(s.env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &server)).To(Succeed())
		}
		servers[i], providerIDs[i] = server.ID, "bizflycloud://"+server.ID
	}
	spec := cloud.PoolSpec{Name: pool, Servers: servers, MinSize: minSize, MaxSize: maxSize}
	Expect(s.env.Sandbox().Call(ctx, http.MethodPost, "pools", spec, nil)).To(Succeed())
	if !machines {
		s.createNodes(ctx, pool, labels, providerIDs...)
	}
}

// runCharts lets the charts of pages run: as their pods say, or from the image that the pages name, on nodes that are ready then.
func (s *session) runCharts(ctx context.Context) {
	GinkgoHelper()
	if !machines {
		kubelet, err := s.env.StartKubelet("karpenter", map[string]string{"app.kubernetes.io/instance": "karpenter"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(kubelet.Stop()).To(Succeed()) })
		return
	}
	const image = "karpenter-provider-bizflycloud"
	Expect(s.env.PushImage(ctx, image, "dev", map[string]string{
		"/" + image: filepath.Join(s.env.Root(), "bin", image), "/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt",
	})).To(Succeed())
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(s.env.Client().List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(2))
		for _, node := range nodes.Items {
			g.Expect(node.Spec.Taints).To(BeEmpty(), node.Name)
			g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), node.Name)
		}
	}).WithTimeout(2 * time.Minute).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// login logs in to the cloud.
func (s *session) login(ctx context.Context) *gobizfly.Client {
	GinkgoHelper()
	variables := s.env.Sandbox().Env()
	api, err := gobizfly.NewClient(gobizfly.WithAPIURL(variables["BIZFLY_CLOUD_API_URL"]), gobizfly.WithRegionName(variables["BIZFLY_CLOUD_REGION"]))
	Expect(err).NotTo(HaveOccurred())
	token, err := api.Token.Init(ctx, &gobizfly.TokenCreateRequest{AuthMethod: "password", Username: variables["BIZFLY_CLOUD_EMAIL"],
		Password: variables["BIZFLY_CLOUD_PASSWORD"], ProjectID: variables["BIZFLY_CLOUD_PROJECT_ID"]})
	Expect(err).NotTo(HaveOccurred())
	api.SetKeystoneToken(token)
	return api
}

// workloads are what is moved: both select what the nodes of the pool and of the NodePool have.
const workloads = `for name in shop cart; do
kubectl create deployment $name --image=registry.k8s.io/pause:3.10 --replicas=2
kubectl patch deployment $name --patch '{"spec": {"template": {"spec": {"nodeSelector": {"env": "prod"}, "terminationGracePeriodSeconds": 1,
  "containers": [{"name": "pause", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}]}}}}'
kubectl rollout status deployment $name --timeout=2m
done`

// prepareWorkerPools leaves a pool "apps" whose nodes run two workloads, and a cluster-autoscaler as users run it outside BKE.
func prepareWorkerPools(ctx context.Context, s *session) {
	GinkgoHelper()
	s.createPool(ctx, "apps", 2, 5, map[string]string{"env": "prod"})
	s.must(ctx, workloads)
	s.after = func(ctx context.Context) { expectNoServersOfOurs(ctx, s) }
	s.must(ctx, `kubectl create deployment cluster-autoscaler --namespace kube-system --image=registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0
kubectl rollout status deployment cluster-autoscaler --namespace kube-system --timeout=2m`)
}

// expectNoServersOfOurs expects that the way back has left nothing in the cloud.
func expectNoServersOfOurs(ctx context.Context, s *session) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		state, err := s.env.Sandbox().State(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		ours := lo.Filter(state.Servers, func(server cloud.Server, _ int) bool { return server.Metadata[v1alpha1.MetadataManaged] != "" })
		g.Expect(ours).To(BeEmpty())
	}).WithTimeout(time.Minute).Should(Succeed())
}

// older is the older provider as far as this migration sees it. Its Deployment is real; while it is scaled up, older drains and
// deletes the NodeClaims that are being deleted, and leaves the root disks of their servers, as the older provider does.
type older struct {
	s       *session
	cloud   *gobizfly.Client
	servers []cloud.Server
	// elsewhere is a server of the older provider in another cluster of the same project.
	elsewhere cloud.Server
	// undrained are pods that were on a node whose NodeClaim was deleted, by their UID.
	undrained sync.Map
}

// olderObjects are what the older provider's users have. Its README does not install its definition of ProviderConfigs.
const olderObjects = `kubectl create namespace karpenter
kubectl apply -f config/crd/karpenter.sh_nodepools.yaml -f config/crd/karpenter.sh_nodeclaims.yaml >/dev/null
kubectl apply -f - <<CRD
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bizflycloudnodeclasses.karpenter.bizflycloud.com}
spec:
  group: karpenter.bizflycloud.com
  names: {kind: BizflyCloudNodeClass, plural: bizflycloudnodeclasses, singular: bizflycloudnodeclass}
  scope: Cluster
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
CRD
kubectl wait --for=condition=Established crd --all --timeout=1m >/dev/null
kubectl apply -f - <<OBJECTS
apiVersion: karpenter.bizflycloud.com/v1
kind: BizflyCloudNodeClass
metadata: {name: default}
spec: {region: HN, zones: [HN1, HN2], template: default, rootDiskSize: 40, diskTypes: [HDD]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: web}
spec:
  template:
    metadata: {labels: {env: prod}}
    spec:
      nodeClassRef: {group: karpenter.bizflycloud.com, kind: BizflyCloudNodeClass, name: default}
      requirements: [{key: karpenter.bizflycloud.com/node-category, operator: In, values: [premium]}]
      terminationGracePeriod: 30s
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: karpenter-leader-election, namespace: karpenter}
spec: {holderIdentity: karpenter-0, leaseDurationSeconds: 15}
OBJECTS
kubectl create deployment karpenter --namespace karpenter --image=registry.example.com/older
kubectl rollout status deployment karpenter --namespace karpenter --timeout=2m`

func prepareOlderProvider(ctx context.Context, s *session) {
	GinkgoHelper()
	s.must(ctx, olderObjects)
	o := &older{s: s, cloud: s.login(ctx), servers: make([]cloud.Server, 2)}
	for name, server := range map[string]*cloud.Server{"older-0": &o.servers[0], "older-1": &o.servers[1], "other-cluster-0": &o.elsewhere} {
		Expect(s.env.Sandbox().Call(ctx, http.MethodPost, "servers", map[string]any{
			"name": name, "zone": "HN1", "metadata": map[string]string{olderMetadata: "true"},
		}, server)).To(Succeed())
	}
	labels := map[string]string{"env": "prod", karpv1.NodePoolLabelKey: "web"}
	s.createNodes(ctx, "older", labels, "bizflycloud://"+o.servers[0].ID, "bizflycloud://"+o.servers[1].ID)
	pool := &karpv1.NodePool{}
	Expect(s.env.Client().Get(ctx, types.NamespacedName{Name: "web"}, pool)).To(Succeed())
	for i := range o.servers {
		claim := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("older-%d", i), Labels: labels, Finalizers: []string{karpv1.TerminationFinalizer},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: pool.Name, UID: pool.UID}}},
			Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: olderGroup, Kind: "BizflyCloudNodeClass", Name: "default"},
				Requirements: pool.Spec.Template.Spec.Requirements, TerminationGracePeriod: pool.Spec.Template.Spec.TerminationGracePeriod},
		}
		Expect(s.env.Client().Create(ctx, claim)).To(Succeed())
		claim.Status.ProviderID, claim.Status.NodeName = "bizflycloud://"+o.servers[i].ID, claim.Name
		Expect(s.env.Client().Status().Update(ctx, claim)).To(Succeed())
	}
	s.must(ctx, workloads)
	// The worker pool that has been enlarged.
	s.createNodes(ctx, "apps", map[string]string{"env": "prod"})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	go func() {
		_ = wait.PollUntilContextCancel(running, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			o.reconcile(ctx)
			return false, nil
		})
	}()
	s.after = o.expectNothingAdopted
}

// reconcile continues each deletion. What fails is tried again in the next pass, as a controller does.
func (o *older) reconcile(ctx context.Context) {
	kube := o.s.env.Client()
	deployment := &appsv1.Deployment{}
	key := types.NamespacedName{Namespace: olderNamespace, Name: olderDeployment}
	if err := kube.Get(ctx, key, deployment); err != nil || deployment.Status.ReadyReplicas == 0 {
		return
	}
	claims := &karpv1.NodeClaimList{}
	_ = kube.List(ctx, claims)
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp == nil || claim.Spec.NodeClassRef.Group != olderGroup {
			continue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}}
		_ = kube.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)))
		pods := &corev1.PodList{}
		if err := kube.List(ctx, pods, client.MatchingFields{"spec.nodeName": claim.Name}); err != nil || len(pods.Items) > 0 {
			for i := range pods.Items {
				// Karpenter evicts them first, and deletes them against their PodDisruptionBudgets once the terminationGracePeriod has passed.
				o.undrained.Store(pods.Items[i].UID, pods.Items[i].Name)
				_ = kube.Delete(ctx, &pods.Items[i])
			}
			continue
		}
		if _, err := o.cloud.CloudServer.Delete(ctx, strings.TrimPrefix(claim.Status.ProviderID, "bizflycloud://"), nil); err != nil {
			continue
		}
		_ = kube.Delete(ctx, node)
		claim.Finalizers = nil
		_ = kube.Update(ctx, claim)
	}
}

// expectNothingAdopted expects that the servers of this cluster have gone through the older provider alone and without pods, that their
// disks are left for the user as the page says, and that the server of another cluster is as it was.
func (o *older) expectNothingAdopted(ctx context.Context) {
	GinkgoHelper()
	expectNoServersOfOurs(ctx, o.s)
	var undrained []any
	o.undrained.Range(func(_, name any) bool {
		undrained = append(undrained, name)
		return true
	})
	Expect(undrained).To(BeEmpty(), "pods on nodes whose NodeClaim was deleted, whose terminationGracePeriod overrides PodDisruptionBudgets")
	state := lo.Must(o.s.env.Sandbox().State(ctx))
	theirs := lo.Filter(state.Servers, func(server cloud.Server, _ int) bool { return server.Metadata[olderMetadata] != "" })
	Expect(theirs).To(ConsistOf(And(HaveField("ID", o.elsewhere.ID), HaveField("Status", cloud.StatusActive), HaveField("Metadata", o.elsewhere.Metadata))))
	for _, server := range o.servers {
		Expect(state.Volumes).To(ContainElement(And(HaveField("Name", server.Name+"_rootdisk"), HaveField("Attachments", BeEmpty()))))
	}
}
