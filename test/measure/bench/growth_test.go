// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

// BenchmarkServerList5000 is one list of all servers through the real client, the part of the sandbox that answers it included.
func BenchmarkServerList5000(b *testing.B) { serverList(b, many) }

// BenchmarkServerList500 must cost as much per server.
func BenchmarkServerList500(b *testing.B) { serverList(b, few) }

func serverList(b *testing.B, servers int) {
	box := cloud.Start(cloud.Options{})
	b.Cleanup(box.Close)
	for i := range servers {
		name := fmt.Sprintf("general-%05d", i)
		box.AddServer(cloud.ServerSpec{Name: name, Metadata: map[string]string{
			v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: "production", v1alpha1.MetadataClusterUID: unit.ClusterUID,
			v1alpha1.MetadataName: name, v1alpha1.MetadataNodeClaim: name, v1alpha1.MetadataNodeClaimUID: fmt.Sprintf("11111111-0000-4000-8000-%012d", i),
			v1alpha1.MetadataNodePool: "general", v1alpha1.MetadataNodeClass: "default", v1alpha1.MetadataAttempt: "1",
			v1alpha1.MetadataImage: "22222222-0000-4000-8000-000000000000",
			"bizfly_cloud_service": "kubernetes_engine", "bke_cluster_id": box.BKE().ClusterUID, "bke_cluster_token": box.BKE().ClusterToken,
			"bke_join_endpoint": box.BKE().JoinEndpoint, "bke_log_endpoint": box.BKE().LogEndpoint, "kubernetes_version": "v1.35.4",
		}})
	}
	client := connect.Client(ctx, box, connect.Unlimited)
	m := measure(b)
	for b.Loop() {
		if listed, err := client.ListServers(ctx); err != nil || len(listed) != servers {
			b.Fatalf("%d servers: %v", len(listed), err)
		}
	}
	m.report()
	b.ReportMetric(float64(m.spent)/float64(b.N)/float64(servers), "cpu-ns/node")
	b.ReportMetric(float64(length(b, box))/float64(servers), "list-B/node")
}

// length is how many bytes the list of servers has.
func length(b *testing.B, box *cloud.Sandbox) int64 {
	b.Helper()
	credentials := box.Credentials()
	login := strings.NewReader(fmt.Sprintf(`{"auth_method": "application_credential", "credential_id": %q, "credential_secret": %q}`,
		credentials.AppCredID, credentials.AppCredSecret))
	answer, err := http.Post(box.APIURL+"/token", "application/json", login)
	if err != nil {
		b.Fatal(err)
	}
	token, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	_ = answer.Body.Close()
	_, after, _ := strings.Cut(string(token), `"token":"`)
	value, _, _ := strings.Cut(after, `"`)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, box.URL+"/iaas-cloud/api/servers", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("X-Auth-Token", value)
	request.Header.Set("X-Auth-Type", "token")
	if answer, err = http.DefaultClient.Do(request); err != nil {
		b.Fatal(err)
	}
	bytes, err := io.Copy(io.Discard, answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatalf("status %d: %v", answer.StatusCode, err)
	}
	_ = answer.Body.Close()
	return bytes
}

// heap is what is in use, without what is garbage.
func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
