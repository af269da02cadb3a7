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

// Package bootstrap makes the user data and the server metadata that turn a new server into a node, and says which
// kubelet settings that node will really have, so that the scheduler computes with the same.
package bootstrap

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Config is what the cluster gives every node, from the controller's environment.
type Config struct {
	// ClusterName is CLUSTER_NAME.
	ClusterName string
	// BKEClusterID is BKE_CLUSTER_ID, the 16 characters of the cluster's uid.
	BKEClusterID string
	// BKEClusterToken is BKE_CLUSTER_TOKEN, the secret with which nodes join and leave.
	BKEClusterToken string
	// BKEJoinEndpoint is BKE_JOIN_ENDPOINT.
	BKEJoinEndpoint string
	// BKELogEndpoint is BKE_LOG_ENDPOINT.
	BKELogEndpoint string
	// BKEKubeletArgsFile is the file from which the worker image's kubelet reads KUBELET_EXTRA_ARGS. Where it is set,
	// the user data registers the node with Karpenter's taints and labels; BKE documents no such file, so it is empty
	// by default and core adds labels and taints after the node has registered.
	BKEKubeletArgsFile string
	// BKE gives the four values above where they may have to be learned; nil means that they are all there is.
	BKE bke.Provider

	// Reader reads Secrets, ConfigMaps and Services by name, without a cache; nil reads none.
	Reader client.Reader
	// Namespace is the controller's own, SYSTEM_NAMESPACE.
	Namespace string
	// UserDataSecretNames are the Secrets of that namespace which NodeClasses may name, USER_DATA_SECRET_NAMES.
	UserDataSecretNames []string
	// JoinTokens issues a bootstrap token per server, JOIN_TOKENS; nil refuses NodeClasses that ask for one.
	JoinTokens jointoken.Provider

	// ClusterEndpoint is the API server as nodes reach it, host:port, CLUSTER_ENDPOINT; empty is looked up.
	ClusterEndpoint string
	// CABundle is the certificate of the cluster's authority as the controller itself was given it, PEM; empty is looked up.
	CABundle []byte
	// ClusterDNS are the addresses of the cluster's DNS, CLUSTER_DNS; empty is looked up.
	ClusterDNS []string
}

// Input is one server to be.
type Input struct {
	// NodeName is the name of the server and of its node.
	NodeName string
	// NodeClaim, NodeClaimUID and Attempt are what a join token is made for; they may be empty where none is asked for.
	NodeClaim, NodeClaimUID string
	Attempt                 int
	// NodeClass is the NodeClass.
	NodeClass *v1alpha1.BizflyNodeClass
	// KubernetesVersion is the image's, for example v1.35.4; empty for images that are not BKE's.
	KubernetesVersion string
	// NetworkIDs are the VPC networks in the order of the ports.
	NetworkIDs []string
	// Labels are put on the node.
	Labels map[string]string
	// Taints are the NodeClaim's taints and startup taints, without karpenter.sh/unregistered, which is always added.
	Taints []corev1.Taint
	// CPU is the number of vCPUs of the flavor.
	CPU int
	// MemoryMiB is the memory of the flavor in MiB.
	MemoryMiB int
}

// Output is what the server is created with.
type Output struct {
	// UserData is plain text, not base64.
	UserData string
	// Metadata is what the worker image's script reads; it holds the join token, so it is never logged.
	Metadata map[string]string
	// UserDataHash is the hash of the templates that this was made of, as in Resolution.
	UserDataHash string
}

// Reservations are the kubelet settings that decide how much of a server pods can use.
type Reservations struct {
	// MaxPods is the most pods that the node runs.
	MaxPods int32
	// KubeReserved is what the kubelet keeps for itself and the container runtime.
	KubeReserved corev1.ResourceList
	// SystemReserved is what the kubelet keeps for the operating system.
	SystemReserved corev1.ResourceList
	// EvictionThreshold is below what the kubelet evicts pods: memory and ephemeral-storage.
	EvictionThreshold corev1.ResourceList
	// Configured reports whether the user decides them, so that pods never get more than they leave. Else they are an
	// estimate of what the BKE worker image decides, and what nodes report replaces them.
	Configured bool
}

// Resolution is what a NodeClass's bootstrap means right now.
type Resolution struct {
	// UserDataHash is the hash of the templates that make user data; empty without any.
	UserDataHash string
	// Notes are what the user may want to know although all is well.
	Notes []string
	// InsecureHost is where servers join without TLS; empty when they do not.
	InsecureHost string
}

// Provider makes user data.
type Provider interface {
	// Resolve reads and tries what user data is made of. A *ValidationError says what is missing for nodes of this
	// NodeClass to join, naming field or environment variable and remedy; any other error says that it could not be found
	// out.
	Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Resolution, error)
	// Render makes user data and metadata.
	Render(ctx context.Context, input Input) (*Output, error)
	// Reservations returns the kubelet settings of a node of this NodeClass with this many vCPUs, MiB of memory and
	// GiB of root disk. They never exceed the server.
	Reservations(nodeClass *v1alpha1.BizflyNodeClass, cpu, memoryMiB, rootDiskGiB int) Reservations
}
