// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Questions about the account and about what the cloud itself runs for a cluster. Their requests only read.

// chartJoinHost is the host of the join endpoint that the chart builds from the cluster's uid.
const chartJoinHost = "engine.api.k8saas.bizflycloud.vn"

// billing is where a client of 2021 read the price list without a login.
const billing = "https://billing.bizflycloud.vn/api/v4/plans"

// hasField reports whether an answer had a field. The key is the method, the route and the status.
func (r *run) hasField(key, path string) bool {
	answer := r.recorder.Answers()[key]
	return answer != nil && answer.Shape[path] != nil
}

// askAccount asks what is known of the account before anything is launched.
func (r *run) askAccount(ctx context.Context) {
	GinkgoHelper()
	r.behaves("token-project", "whether the reply to a login names the project", r.hasField("POST api/token 200", "project_id"))
	account, err := r.api.Account(ctx)
	r.find("account", "what of the account is unpaid", lo.Ternary(err != nil, said(err), cmp.Or(account.Unpaid, "nothing")))
	r.find("services", "the services of the region", account.Services)
	r.behaves("account-service", "whether the service catalog has bizfly_account for the region", slices.Contains(account.Services, "bizfly_account"))
	if !r.sandbox { // which has none
		r.find("price-list", "what the public price list of 2021 answers without a login", priceList(ctx))
	}
	r.balance, r.balanceKnown = r.readBalance(ctx)
}

// priceList asks for one plan, with no credential. The recorder must not see it: it would send the token to that host later.
func priceList(ctx context.Context) string {
	GinkgoHelper()
	target := lo.Must(url.Parse(billing))
	target.RawQuery = url.Values{"embedded": {`["product","unit_prices"]`}, "limit": {"1"}, "page": {"1"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	Expect(err).NotTo(HaveOccurred())
	client := &http.Client{Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return "no answer"
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var plans []map[string]any
	if err != nil || json.Unmarshal(body, &plans) != nil || len(plans) == 0 {
		return response.Status + ", and no list of plans"
	}
	return response.Status + ", plans with " + strings.Join(slices.Sorted(maps.Keys(plans[0])), ", ")
}

// readBalance reads what the account has, in VND; false where the answer does not show it.
func (r *run) readBalance(ctx context.Context) (float64, bool) {
	GinkgoHelper()
	status, body, err := r.recorder.Ask(ctx, "bizfly_account", "/user")
	var answer struct {
		Data struct {
			Balance *float64 `json:"billing_balance"`
		} `json:"data"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.Data.Balance == nil {
		return 0, false
	}
	return *answer.Data.Balance, true
}

// askBill asks what the run has cost, as far as the balance shows it at once: whether a started hour of the server is charged in full.
func (r *run) askBill(ctx context.Context, vndPerHour float64, created time.Time) {
	GinkgoHelper()
	r.find("server-minutes", "how many minutes the server lived; less than 60 and a whole hour on the invoice means that a started hour is charged in full",
		int(time.Since(created).Minutes()))
	r.find("server-price", "its price in VND per hour by our table", vndPerHour)
	now, known := r.readBalance(ctx)
	if !known || !r.balanceKnown {
		r.find("balance-used", "by how many VND the balance went down in the run", "the answer does not show the balance")
		return
	}
	r.find("balance-used", "by how many VND the balance went down in the run", r.balance-now)
}

// askTask asks what the task of a launch answers when its server is gone.
func (r *run) askTask(ctx context.Context) {
	GinkgoHelper()
	_, taskID := r.accepted()
	_, err := r.api.GetTask(ctx, taskID)
	r.behaves("task-later", "the answer for the task of a launch when its server is gone", lo.Ternary(err == nil, "known", said(err)))
}

// askPools asks what BKE's own pools are like, which new nodes should be like: their servers' metadata, networks and addresses,
// where they join, and how volumes of pods are billed. And where BKE runs its autoscaler and its cloud controller manager.
func (r *run) askPools(ctx context.Context) {
	GinkgoHelper()
	volumes, err := r.api.ListVolumes(ctx)
	Expect(err).NotTo(HaveOccurred())
	r.find("pvc-plans", "the billing plans of the volumes of pods", lo.Must(sorted(lo.Uniq(lo.FilterMap(volumes, func(v *gobizfly.Volume, _ int) (string, bool) {
		return v.BillingPlan, strings.HasPrefix(v.Name, "pvc-")
	})))))
	if r.kube == nil {
		r.find("pools-not-asked", "why it is not known what BKE's own pools are like", "KUBECONFIG is not set")
		return
	}
	_, err = r.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "cluster-autoscaler-status", metav1.GetOptions{})
	r.find("autoscaler-status", "whether the ConfigMap kube-system/cluster-autoscaler-status exists",
		lo.Ternary(apierrors.IsNotFound(err), "no", lo.Ternary(err == nil, "yes", "not to be seen")))
	pods, err := r.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=bizfly-cloud-controller-manager"})
	if err == nil {
		r.find("ccm-pods", "how many pods of the cloud controller manager run in the cluster", len(pods.Items))
	}
	r.askPoolServer(ctx)

	if r.bke.ClusterID == "" {
		r.find("cluster-not-asked", "why it is not known what the cluster says of its pools", "its id is not set, and was not learned from a pool")
		return
	}
	cluster, err := r.api.GetCluster(ctx, r.bke.ClusterID)
	Expect(err).NotTo(HaveOccurred())
	r.find("pools-scaling", "how many worker pools scale by themselves, which `kubectl bizfly pool pin` ends and reads back",
		lo.CountBy(cluster.WorkerPools, func(p gobizfly.ExtendedWorkerPool) bool { return p.EnableAutoScaling }))
	r.askLaunchConfiguration(ctx, cluster.WorkerPools)
}

// askLaunchConfiguration asks whether a pool's launch configuration can be read, which has networks, firewalls and user data.
func (r *run) askLaunchConfiguration(ctx context.Context, pools []gobizfly.ExtendedWorkerPool) {
	GinkgoHelper()
	pool, found := lo.Find(pools, func(p gobizfly.ExtendedWorkerPool) bool { return p.LaunchConfigID != "" })
	if !found {
		r.find("launch-configuration", "whether the launch configuration of a worker pool can be read", "no pool names one")
		return
	}
	configuration, err := r.plain(ctx).AutoScaling.LaunchConfigurations().Get(ctx, pool.LaunchConfigID)
	r.find("launch-configuration", "whether the launch configuration of a worker pool can be read",
		lo.Ternary(err == nil, "yes", lo.Ternary(errors.Is(err, gobizfly.ErrNotFound), "no: not found", "no")))
	if err != nil {
		return
	}
	r.find("launch-configuration-metadata", "the metadata keys of servers that a launch configuration launches, by which nodes join",
		lo.Must(sorted(lo.Keys(configuration.Metadata))))
	r.find("launch-configuration-forms", "how a launch configuration, which the cloud has written itself, names flavor and volume type, and whether it names "+
		"networks and firewalls", map[string]any{
		"flavor": configuration.Flavor, "volume type": lo.FromPtr(configuration.RootDisk).Type, "networks": len(configuration.Networks),
		"firewalls": len(configuration.SecurityGroups) + lo.SumBy(configuration.Networks, func(n *gobizfly.AutoScalingNetworks) int {
			return len(n.SecurityGroups)
		}),
	})
}

// askJoinHost asks whether nodes of this region join where the controller looks for it when no metadata says it.
func (r *run) askJoinHost(ctx context.Context, endpoint string) {
	GinkgoHelper()
	join, err := url.Parse(endpoint)
	if err != nil || join.Host == "" {
		return
	}
	r.find("pool-join-host", "the scheme and host at which nodes of region "+r.client.Region+" join", join.Scheme+"://"+join.Host)
	r.find("join-host-of-chart", "whether that is the host that the chart assumes for each region", join.Host == chartJoinHost)
	_, domain, _ := strings.Cut(lo.Must(url.Parse(r.apiServer)).Hostname(), ".")
	r.find("join-host-of-api-server", "whether that is engine.api.<domain> where the API server is <uid>.api.<domain>",
		lo.Ternary[any](strings.HasPrefix(domain, "api."), join.Host == "engine."+domain, "KUBECONFIG has another name of the API server"))
	if r.sandbox {
		return // its nodes join inside of it
	}
	dialer := net.Dialer{Timeout: 20 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(join.Hostname(), cmp.Or(join.Port(), lo.Ternary(join.Scheme == "https", "443", "80"))))
	r.find("join-host-reachable", "whether a connection to that host can be made from where this runs", err == nil)
	if err == nil {
		_ = connection.Close()
	}
}

func (r *run) askPoolServer(ctx context.Context) {
	GinkgoHelper()
	nodes, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "bke.bizflycloud.vn/node-id"})
	Expect(err).NotTo(HaveOccurred())
	node, found := lo.Find(nodes.Items, func(n corev1.Node) bool { return n.Labels["karpenter.sh/nodepool"] == "" && n.Spec.ProviderID != "" })
	if !found {
		r.find("pool-server", "whether the server of a node of a worker pool can be read", "no node has the label bke.bizflycloud.vn/node-id")
		return
	}
	id, _ := providerid.Parse(node.Spec.ProviderID)
	metadata, err := r.api.GetServerMetadata(ctx, id)
	r.find("pool-server", "whether the server of a node of a worker pool can be read", lo.Ternary(err == nil, "yes", said(err)))
	if err != nil {
		return
	}
	r.find("pool-metadata", "the metadata keys of a server of a worker pool, by which nodes join", lo.Must(sorted(lo.Keys(metadata))))
	r.askJoinHost(ctx, metadata["bke_join_endpoint"])
	server, err := r.api.GetServer(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	r.find("pool-billing-plan", "the billing plan of a server of a worker pool", server.BillingPlan)
	ports, err := r.api.ListNetworkInterfaces(ctx)
	Expect(err).NotTo(HaveOccurred())
	kinds := map[string]int{}
	for _, port := range ports {
		if cmp.Or(port.AttachedServer.ID, port.DeviceID) == id {
			kinds[port.Type]++
			kinds["firewalls"] += len(port.SecurityGroups)
		}
	}
	r.find("pool-interfaces", "how many private (LAN) and public (WAN) interfaces and firewalls a server of a worker pool has", kinds)
}

// nodeStays asks whether BKE has removed the node, which belongs to no pool.
func (r *run) nodeStays(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	r.behaves("node-stays", "whether the node, which belongs to no pool, was still there when its server was deleted", !apierrors.IsNotFound(err))
}
