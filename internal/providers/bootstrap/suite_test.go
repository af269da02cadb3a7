// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	join "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	secret = "s3cr3t-j0in-t0ken"
	// namespace is the controller's own.
	namespace = "karpenter"
)

var (
	ctx = context.Background()
	// known is the catalog: nothing here sends a request, only the snapshot's content matters.
	known  *snapshot
	config bootstrap.Config
	// values are what nodes join BKE with.
	values join.Values
	// tokens are the join tokens that were requested.
	tokens *issuer
	// kube is a real API server: what reads Secrets must cope with its answers.
	kube client.Client
)

func TestBootstrap(t *testing.T) { suite.Run(t, "Bootstrap") }

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	env := &envtest.Environment{}
	rest := lo.Must(env.Start())
	DeferCleanup(env.Stop)
	kube = lo.Must(client.New(rest, client.Options{}))
	Expect(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
})

var _ = BeforeEach(func() {
	tokens = &issuer{}
	cluster := &gobizfly.FullCluster{}
	cluster.UID, cluster.Version.K8SVersion = "zdckkshu1he44fsb", "v1.35.4"
	known = &snapshot{Snapshot_: &catalog.Snapshot{Cluster: cluster}}
	values = join.Values{
		ClusterID: "zdckkshu1he44fsb", Token: secret,
		JoinEndpoint: "http://engine.example/engine/cluster_join/zdckkshu1he44fsb", LogEndpoint: "http://engine.example/engine/cluster_log/zdckkshu1he44fsb",
	}
	config = bootstrap.Config{
		Options: &options.Options{
			ClusterName: "prod", Namespace: namespace, UserDataSecretNames: []string{"templates"},
			ClusterEndpoint: "10.20.0.10:6443",
		},
		Reader: kube, JoinTokens: tokens, CABundle: []byte(authority),
	}
})

// snapshot is a catalog that was read once.
type snapshot struct {
	Snapshot_ *catalog.Snapshot
}

func (s *snapshot) Snapshot() (*catalog.Snapshot, error) {
	if s.Snapshot_ == nil {
		return nil, catalog.ErrNotReady
	}
	return s.Snapshot_, nil
}

func (*snapshot) Refresh(context.Context) error { return nil }

// issuer gives every attempt a token of its own.
type issuer struct{ requests []jointoken.Request }

func (i *issuer) Issue(_ context.Context, request jointoken.Request) (string, error) {
	i.requests = append(i.requests, request)
	return fmt.Sprintf("node%02d.0123456789abcdef", request.Attempt), nil
}

func (*issuer) Revoke(context.Context, types.UID) error { return nil }

func validate(nodeClass *v1alpha1.BizflyNodeClass) error {
	_, err := provider().Resolve(ctx, nodeClass)
	return err
}

func provider() *bootstrap.DefaultProvider {
	if config.BKE == nil {
		config.BKE = values
	}
	return bootstrap.NewDefaultProvider(config, known)
}

// allowed leaves out the script that keeps pods off the metadata service.
var allowed = &v1alpha1.MetadataOptions{PodAccess: v1alpha1.PodAccessAllowed}

func bke() *v1alpha1.BizflyNodeClass {
	return &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{BootstrapMode: v1alpha1.BootstrapModeBKE, MetadataOptions: allowed}}
}

func custom(userData string) *v1alpha1.BizflyNodeClass {
	return &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{
		BootstrapMode: v1alpha1.BootstrapModeCustom, UserData: lo.ToPtr(userData), MetadataOptions: allowed,
		UserDataValues: map[string]string{"team": "storage"},
	}}
}

func input(nodeClass *v1alpha1.BizflyNodeClass) bootstrap.Input {
	return bootstrap.Input{
		NodeName: "general-x7k2p-0a1b2c3d", NodeClass: nodeClass, KubernetesVersion: "v1.35.2", NetworkIDs: []string{"network-1", "network-2"},
		Labels: map[string]string{"karpenter.sh/nodepool": "general", "team": "storage"},
		CPU:    4, MemoryMiB: 8192, Attempt: 1,
		NodeClaim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-x7k2p", UID: "6f2d"}, Spec: karpv1.NodeClaimSpec{
			Taints:        []corev1.Taint{{Key: "dedicated", Value: "storage", Effect: corev1.TaintEffectNoSchedule}},
			StartupTaints: []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoExecute}},
		}},
	}
}

func render(in bootstrap.Input) *bootstrap.Output {
	GinkgoHelper()
	return lo.Must(provider().Render(ctx, in))
}

func invalidOf(err error) *bootstrap.ValidationError {
	GinkgoHelper()
	var invalid *bootstrap.ValidationError
	Expect(errors.As(err, &invalid)).To(BeTrue(), "%v", err)
	return invalid
}

const (
	authority = `-----BEGIN CERTIFICATE-----
MIIBgTCCASegAwIBAgIUOdU/Cdcto6+f8UiVj+l0YcJhI9EwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjExOTE0MTBaGA8yMTI2MTAy
ODE5MTQxMFowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABNzuLJlMDni/eE9X7C7WbMvQnGYp5y7W7mvA6DgIgPOIR+D/nFha
Q/9Z4YC8tROmvovnzuC4uUuW+mCN+SF6itCjUzBRMB0GA1UdDgQWBBT0VCv8OeHQ
3tSbKuq+7jD9Y39w5DAfBgNVHSMEGDAWgBT0VCv8OeHQ3tSbKuq+7jD9Y39w5DAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIAbRNtt4fwR7Gp3tJ+Zq
DASnZKnjy3iJRoz31NG0J/oFAiEAyE3DEtm8t/0mcXtsaWJCOHSjxl6UyC5vgYbE
sEZ0p+w=
-----END CERTIFICATE-----
`
	authorityHash = "sha256:bb04fbd79cfbffec9bdb9e5c583525604046ac05ad9dcc95fada9904b0bfb530"
)
