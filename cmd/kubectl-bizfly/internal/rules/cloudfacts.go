// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"

	"github.com/bizflycloud/gobizfly"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// login is what came of logging in; exactly one of cloud and err is there.
type login struct {
	cloud *connect.Cloud
	err   error
	// region is the one that is configured, well or not.
	region string
}

// cluster is the BKE cluster, as far as it is known.
type bkeCluster struct {
	values bke.Values
	// unlearned is why it could not be learned from a worker pool.
	unlearned error
	// missing reports that the project has no such cluster.
	missing bool
	pools   []gobizfly.ExtendedWorkerPool
}

// errNoCluster says that there is no BKE cluster to look at, as in a cluster that is not BKE's.
const errNoCluster = nothingToCheckError("no BKE cluster is known")

var (
	factAttempt = newFact("login", func(ctx context.Context, r *reading) (login, error) {
		attempt := login{}
		if attempt.cloud, attempt.err = r.Login(ctx); attempt.err != nil {
			effective, _ := r.Effective(ctx)
			attempt.region = effective.Region
		}
		return attempt, nil
	})

	factLogin = newFact("BizFly Cloud", func(ctx context.Context, r *reading) (*connect.Cloud, error) { return r.Login(ctx) })

	// factUnread is why the catalog cannot be read; nil where it can.
	factUnread = newFact("answer of the catalog", func(ctx context.Context, r *reading) (error, error) {
		if _, err := r.Login(ctx); err != nil {
			return nil, err
		}
		_, err := r.Cloud(ctx)
		return err, nil
	})

	factCatalog = catalogFact("catalog", func(_ context.Context, cloud *connect.Cloud) (*catalog.Snapshot, error) {
		return cloud.Snapshot, nil
	})

	factAccount = loginFact("account", func(ctx context.Context, cloud *connect.Cloud) (bizfly.Account, error) {
		return cloud.API.Account(ctx)
	})

	factServices = loginFact("services", func(ctx context.Context, cloud *connect.Cloud) ([]string, error) {
		// The services are known even where the state of the account is not.
		account, err := cloud.API.Account(ctx)
		if len(account.Services) > 0 {
			err = nil
		}
		return account.Services, err
	})

	factServers    = listed("servers", bizfly.API.ListServers)
	factVolumes    = listed("volumes", bizfly.API.ListVolumes)
	factInterfaces = listed("network interfaces", bizfly.API.ListNetworkInterfaces)
	factFirewalls  = listed("firewalls", bizfly.API.ListFirewalls)

	factBKE = loginFact("BKE cluster", readBKE)

	// factSelected are the firewalls that each BizflyNodeClass selects, by its name; none where its selection fails, which
	// a rule about it says.
	factSelected = newFact("selected firewalls", func(ctx context.Context,
		r *reading) (map[string][]v1alpha1.FirewallStatus, error) {
		cloud, err := r.Cloud(ctx)
		if err != nil {
			return nil, err
		}
		nodeClasses, err := factNodeClasses.in(ctx, r)
		if err != nil {
			return nil, err
		}
		selected := map[string][]v1alpha1.FirewallStatus{}
		for i := range nodeClasses.Items {
			if of, err := cloud.Networks.Firewalls(ctx, &nodeClasses.Items[i]); err == nil {
				selected[nodeClasses.Items[i].Name] = of
			}
		}
		return selected, nil
	})
)

// loginFact is a fact for which a login is enough; catalogFact needs the catalog, too.
func loginFact[T any](name string, load func(context.Context, *connect.Cloud) (T, error)) *fact[T] {
	return cloudFact(name, (*connect.Session).Login, load)
}

func catalogFact[T any](name string, load func(context.Context, *connect.Cloud) (T, error)) *fact[T] {
	return cloudFact(name, (*connect.Session).Cloud, load)
}

func cloudFact[T any](name string, open func(*connect.Session, context.Context) (*connect.Cloud, error),
	load func(context.Context, *connect.Cloud) (T, error)) *fact[T] {
	return newFact(name, func(ctx context.Context, r *reading) (T, error) {
		cloud, err := open(r.Session, ctx)
		if err != nil {
			var none T
			return none, err
		}
		return load(ctx, cloud)
	})
}

// listed is a list of the project.
func listed[T any](what string, list func(bizfly.API, context.Context) ([]T, error)) *fact[[]T] {
	return loginFact(what, func(ctx context.Context, cloud *connect.Cloud) ([]T, error) {
		all, err := list(cloud.API, ctx)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", what, err)
		}
		return all, nil
	})
}

func readBKE(ctx context.Context, cloud *connect.Cloud) (bkeCluster, error) {
	known := bkeCluster{}
	if known.values, known.unlearned = cloud.BKE.Values(ctx); known.unlearned != nil {
		return known, nil //nolint:nilerr // what could not be learned is a part of the answer
	}
	if known.values.ClusterID == "" {
		return known, errNoCluster
	}
	answer, err := cloud.API.GetCluster(ctx, known.values.ClusterID)
	if bizfly.IsNotFound(err) {
		known.missing = true
		return known, nil
	}
	if err != nil {
		return known, fmt.Errorf("reading the BKE cluster: %w", err)
	}
	known.pools = answer.WorkerPools
	return known, nil
}
