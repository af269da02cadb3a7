/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package options

import (
	"fmt"
	"net"
	"strings"

	"github.com/samber/lo"
	"go.uber.org/multierr"
	"k8s.io/apimachinery/pkg/util/validation"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/env"
)

// Bootstrap is what user data is made of beside what NodeClasses say, and what the controller may read and write for it.
type Bootstrap struct {
	// UserDataSecretNames are the Secrets of the controller's namespace that spec.bootstrap.userDataFrom may name, because
	// the controller's Role grants no others (USER_DATA_SECRET_NAMES, separated by commas).
	UserDataSecretNames []string
	// JoinTokens lets NodeClasses ask for a bootstrap token per server, which is a Secret in kube-system (JOIN_TOKENS).
	JoinTokens bool
	// BKEDiscoverFromPool lets what is unset of the BKE values be learned from the metadata of a pool server of this
	// cluster (BKE_DISCOVER_FROM_POOL).
	BKEDiscoverFromPool bool
	// ClusterEndpoint is the API server as nodes reach it, host:port (CLUSTER_ENDPOINT); empty is looked up.
	ClusterEndpoint string
	// ClusterDNS are the addresses of the cluster's DNS (CLUSTER_DNS, separated by commas); empty is looked up.
	ClusterDNS []string

	// secretNames and dns are the lists as they were given.
	secretNames, dns string
}

func (b *Bootstrap) addFlags(fs *coreoptions.FlagSet) {
	fs.StringVar(&b.secretNames, "user-data-secret-names", env.WithDefaultString("USER_DATA_SECRET_NAMES", ""), "The Secrets of the controller's namespace that spec.bootstrap.userDataFrom may name, separated by commas.")
	fs.BoolVarWithEnv(&b.JoinTokens, "join-tokens", "JOIN_TOKENS", false, "Let NodeClasses ask for a short-lived bootstrap token per server, which is written to kube-system.")
	fs.BoolVarWithEnv(&b.BKEDiscoverFromPool, "bke-discover-from-pool", "BKE_DISCOVER_FROM_POOL", false, "Learn what is unset of the BKE values from the metadata of a pool server of this cluster.")
	fs.StringVar(&b.ClusterEndpoint, "cluster-endpoint", env.WithDefaultString("CLUSTER_ENDPOINT", ""), "The API server as nodes reach it, host:port, for templates. Empty means the one of kube-public/cluster-info.")
	fs.StringVar(&b.dns, "cluster-dns", env.WithDefaultString("CLUSTER_DNS", ""), "The addresses of the cluster's DNS for templates, separated by commas. Empty means that of the Service kube-system/kube-dns.")
}

// parse splits the lists.
func (b *Bootstrap) parse() {
	split := func(list string) []string {
		return lo.Uniq(lo.Compact(lo.Map(strings.Split(list, ","), func(s string, _ int) string { return strings.TrimSpace(s) })))
	}
	b.UserDataSecretNames, b.ClusterDNS = split(b.secretNames), split(b.dns)
	b.ClusterEndpoint = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.ClusterEndpoint), "https://"), "/")
}

// validate refuses the Secret with the cloud's credentials as user data: whoever may write a NodeClass could read it from
// a server.
func (b *Bootstrap) validate(credentialsSecretName string) error {
	var errs error
	for _, name := range b.UserDataSecretNames {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			errs = multierr.Append(errs, fmt.Errorf("USER_DATA_SECRET_NAMES=%q is not the name of a Secret: %s", name, strings.Join(problems, "; ")))
		}
		if name == credentialsSecretName {
			errs = multierr.Append(errs, fmt.Errorf("USER_DATA_SECRET_NAMES=%q is the Secret with the credentials of the cloud, which servers must not get: keep templates in one of their own", name))
		}
	}
	if b.ClusterEndpoint != "" {
		if host, port, err := net.SplitHostPort(b.ClusterEndpoint); err != nil || host == "" || port == "" {
			errs = multierr.Append(errs, fmt.Errorf("CLUSTER_ENDPOINT=%q is not host:port: use for example 10.20.0.10:6443", b.ClusterEndpoint))
		}
	}
	for _, address := range b.ClusterDNS {
		if net.ParseIP(address) == nil {
			errs = multierr.Append(errs, fmt.Errorf("CLUSTER_DNS=%q is not an IP address: use for example 10.96.0.10", address))
		}
	}
	return errs
}
