// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"context"

	"github.com/awslabs/operatorpkg/option"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// Suite gives the suite of a package an environment, and each of its specs a cloud of its own in it. The setups run after that,
// in order, before each spec. It is called where the package's variables are: var _ = unit.Suite(ctx, &env).
func Suite(ctx context.Context, env **Environment, setups ...func(context.Context, *Environment)) bool {
	BeforeSuite(func() {
		*env = Start(ctx)
		DeferCleanup(func() { Expect((*env).Stop()).To(Succeed()) })
	})
	BeforeEach(func() {
		(*env).Reset(ctx, cloud.Options{})
		for _, setup := range setups {
			setup(ctx, *env)
		}
	})
	AfterEach(func() {
		Expect((*env).Cleanup(ctx)).To(Succeed())
		(*env).CloseCloud()
	})
	return true
}

// APIServer gives the suite of a package an API server alone, whose client reads without a cache. The setups run once after its
// start.
func APIServer(env **coretest.Environment, setups ...func()) bool {
	return BeforeSuite(func() {
		*env = apiServer()
		DeferCleanup(func() { Expect((*env).Stop()).To(Succeed()) })
		for _, setup := range setups {
			setup()
		}
	})
}

// apiServer starts an API server with our resources.
func apiServer(options ...option.Function[coretest.EnvironmentOptions]) *coretest.Environment {
	suite.UseControlPlane()
	env := coretest.NewEnvironment(append(options, coretest.WithCRDs(apis.CRDs...))...)
	if cached, ok := env.Client.(*coretest.CacheSyncingClient); ok {
		env.Client = syncedClient{cached}
	}
	return env
}

// WithNodeClass is a setup that creates the default NodeClass.
func WithNodeClass(ctx context.Context, env *Environment) {
	_, err := env.NodeClass(ctx)
	Expect(err).ToNot(HaveOccurred())
}

// ServerID returns the id of the server in a provider ID.
func ServerID(providerID string) string {
	GinkgoHelper()
	id, ok := providerid.Parse(providerID)
	Expect(ok).To(BeTrue(), providerID)
	return id
}

// Servers are the servers that exist.
func (e *Environment) Servers() []cloud.Server {
	return lo.Reject(e.Sandbox.Servers(), func(s cloud.Server, _ int) bool { return s.Status == "DELETED" })
}

// Server returns the server of a provider ID.
func (e *Environment) Server(providerID string) cloud.Server {
	GinkgoHelper()
	id := ServerID(providerID)
	found, ok := lo.Find(e.Sandbox.Servers(), func(s cloud.Server) bool { return s.ID == id })
	Expect(ok).To(BeTrue(), "there is no server %s", id)
	return found
}

// NewManager gives a spec a manager of its own. The name of a controller may be there already: one process runs several of these specs, and one of
// them again after a failure, whose reason a rejected name would hide.
func NewManager(cfg *rest.Config) manager.Manager {
	GinkgoHelper()
	m, err := controllerruntime.NewManager(cfg, controllerruntime.Options{
		Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: lo.ToPtr(true)},
	})
	Expect(err).ToNot(HaveOccurred())
	return m
}

// RunManager runs a manager until the spec ends. What it returns ends it before the objects of the spec are deleted.
func RunManager(ctx context.Context, m manager.Manager) (end func()) {
	managed, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		Expect(m.Start(managed)).To(Succeed())
	}()
	end = func() {
		stop()
		<-done
	}
	DeferCleanup(end)
	return end
}
