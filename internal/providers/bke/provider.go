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

package bke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// labelPoolNode is on the nodes of BKE's own pools.
	labelPoolNode = "bke.bizflycloud.vn/node-id"
	// labelNodePool is on Karpenter's nodes, which BKE may label like its own; their metadata came from here.
	labelNodePool = "karpenter.sh/nodepool"

	// maxServers bounds how many pool servers are read: those that are read must agree, and more prove no more.
	maxServers = 3
	// maxNodes bounds the list of nodes.
	maxNodes = 100
	// timeout bounds one look.
	timeout = 30 * time.Second
	// retry is how long a look that found nothing is not repeated: every launch asks.
	retry = 30 * time.Second
)

// API is what of the cloud is read.
type API interface {
	// GetServerMetadata returns the metadata of one server with the secrets in it.
	GetServerMetadata(ctx context.Context, id string) (map[string]string, error)
	// GetCluster returns one BKE cluster.
	GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error)
}

// Config is what the environment says.
type Config struct {
	// Values are those of the environment.
	Values
	// Discover lets what they leave out be learned.
	Discover bool
}

// DefaultProvider is the Provider over the cluster's nodes and the cloud.
type DefaultProvider struct {
	config Config
	reader client.Reader
	api    API
	clock  clock.Clock
	flight singleflight.Group

	mu      sync.Mutex // not held while anything is read
	learned *Values
	failed  error
	tried   time.Time
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider makes a provider that has learned nothing yet. The reader lists nodes.
func NewDefaultProvider(config Config, reader client.Reader, api API, clk clock.Clock) *DefaultProvider {
	return &DefaultProvider{config: config, reader: reader, api: api, clock: clk}
}

// Known implements Provider.
func (p *DefaultProvider) Known() Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learned != nil {
		return *p.learned
	}
	return p.config.Values
}

// Values implements Provider. Many that ask at once share one look, and one that found nothing is not repeated for half a
// minute.
func (p *DefaultProvider) Values(ctx context.Context) (Values, error) {
	known := p.Known()
	if known.Complete() || !p.config.Discover {
		return known, nil
	}
	p.mu.Lock()
	failed, tried := p.failed, p.tried
	p.mu.Unlock()
	if failed != nil && p.clock.Since(tried) < retry {
		return known, failed
	}
	result := p.flight.DoChan("", func() (any, error) {
		// The look is everybody's: it must not end with the one who happened to begin it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return nil, p.look(ctx)
	})
	select {
	case <-ctx.Done():
		return known, ctx.Err()
	case r := <-result:
		return p.Known(), r.Err
	}
}

func (p *DefaultProvider) look(ctx context.Context) error {
	learned, err := p.learn(ctx)
	if err != nil {
		err = fmt.Errorf("learning the BKE values from a pool server: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried, p.failed = p.clock.Now(), err
	if err == nil {
		p.learned = learned
	}
	return err
}

// learn reads the metadata of a few pool servers, which must agree with each other, with what is configured, and with what
// the Kubernetes Engine says of this project's clusters.
func (p *DefaultProvider) learn(ctx context.Context) (*Values, error) {
	nodes, err := p.poolNodes(ctx)
	if err != nil {
		return nil, err
	}
	var found *Values
	var from string
	var failures []error
	for _, node := range nodes {
		read, err := p.read(ctx, node)
		if err == nil {
			err = p.consistent(read)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
			continue
		}
		if found != nil && (read.ClusterID != found.ClusterID || read.Token != found.Token || read.JoinEndpoint != found.JoinEndpoint) {
			return nil, fmt.Errorf("the servers of nodes %s and %s do not say the same of the cluster: set BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN and BKE_JOIN_ENDPOINT "+
				"instead", from, node.Name)
		}
		found, from = cmp.Or(found, read), cmp.Or(from, node.Name)
	}
	if found == nil {
		return nil, errors.Join(append(failures, fmt.Errorf("none of %d nodes of BKE's pools says how to join", len(nodes)))...)
	}
	cluster, err := p.api.GetCluster(ctx, found.ClusterID)
	if err != nil {
		return nil, fmt.Errorf("reading cluster %s, which node %s says it is of: %w", found.ClusterID, from, err)
	}
	if cluster == nil || cluster.UID != found.ClusterID {
		return nil, fmt.Errorf("node %s says that it is of cluster %s, which the Kubernetes Engine does not confirm", from, found.ClusterID)
	}
	return p.completed(found, from), nil
}

// poolNodes are nodes of BKE's own pools, the oldest first: the one that has joined longest is the least doubtful.
func (p *DefaultProvider) poolNodes(ctx context.Context) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := p.reader.List(ctx, list, client.HasLabels{labelPoolNode}, client.Limit(maxNodes)); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := lo.Filter(list.Items, func(node corev1.Node, _ int) bool {
		_, ours := node.Labels[labelNodePool]
		_, parsed := providerid.Parse(node.Spec.ProviderID)
		return !ours && parsed
	})
	if len(nodes) == 0 {
		return nil, fmt.Errorf("no node has the label %s and a provider ID; a cluster that has only Karpenter's nodes needs BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN and "+
			"BKE_JOIN_ENDPOINT", labelPoolNode)
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return nodes[:min(len(nodes), maxServers)], nil
}

func (p *DefaultProvider) read(ctx context.Context, node corev1.Node) (*Values, error) {
	id, _ := providerid.Parse(node.Spec.ProviderID)
	metadata, err := p.api.GetServerMetadata(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading server %s: %w", id, err)
	}
	if lo.CoalesceOrEmpty(metadata[v1alpha1.MetadataManaged], metadata[v1alpha1.LegacyMetadataManaged]) != "" {
		return nil, errors.New("its server was made by Karpenter")
	}
	return &Values{
		ClusterID: metadata["bke_cluster_id"], Token: metadata["bke_cluster_token"],
		JoinEndpoint: metadata["bke_join_endpoint"], LogEndpoint: metadata["bke_log_endpoint"],
	}, nil
}

// consistent checks what a server says; it names no token.
func (p *DefaultProvider) consistent(read *Values) error {
	configured := p.config.Values
	if !read.Complete() {
		return errors.New("its server's metadata lacks bke_cluster_id, bke_cluster_token or bke_join_endpoint")
	}
	if configured.ClusterID != "" && read.ClusterID != configured.ClusterID {
		return fmt.Errorf("its server's metadata bke_cluster_id %q is not BKE_CLUSTER_ID %q", read.ClusterID, configured.ClusterID)
	}
	join, err := url.Parse(read.JoinEndpoint)
	if err != nil || join.Host == "" || (join.Scheme != "http" && join.Scheme != "https") {
		return errors.New("its server's metadata bke_join_endpoint is not an http or https URL")
	}
	if !strings.HasSuffix(strings.TrimSuffix(join.Path, "/"), "/"+read.ClusterID) {
		return fmt.Errorf("its server's metadata bke_join_endpoint does not end in its bke_cluster_id %q", read.ClusterID)
	}
	for _, other := range []struct{ name, endpoint string }{
		{"BKE_JOIN_ENDPOINT", configured.JoinEndpoint}, {"BKE_LOG_ENDPOINT", configured.LogEndpoint}, {"bke_log_endpoint", read.LogEndpoint},
	} {
		if u, err := url.Parse(other.endpoint); other.endpoint != "" && (err != nil || u.Host != join.Host) {
			return fmt.Errorf("its server's metadata bke_join_endpoint is at %q, %s is not", join.Host, other.name)
		}
	}
	return nil
}

// completed fills what the environment leaves out, and says what that is.
func (p *DefaultProvider) completed(found *Values, from string) *Values {
	values := p.config.Values
	var learned []string
	for _, field := range []struct {
		name string
		to   *string
		read string
	}{
		{"BKE_CLUSTER_ID", &values.ClusterID, found.ClusterID}, {"BKE_CLUSTER_TOKEN", &values.Token, found.Token},
		{"BKE_JOIN_ENDPOINT", &values.JoinEndpoint, found.JoinEndpoint}, {"BKE_LOG_ENDPOINT", &values.LogEndpoint, found.LogEndpoint},
	} {
		if strings.TrimSpace(*field.to) == "" && field.read != "" {
			*field.to = field.read
			learned = append(learned, field.name)
		}
	}
	values.Learned = fmt.Sprintf("%s learned from the pool server of node %s", strings.Join(learned, ", "), from)
	return &values
}
