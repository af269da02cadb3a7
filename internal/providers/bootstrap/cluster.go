// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// cluster is what templates can use about the cluster. It is read only when a template uses it: a cluster whose
// templates do not need it need not grant it.
type cluster struct {
	ctx    context.Context //nolint:containedctx // a template's methods take none; this lives as long as one rendering
	config *Config
	info   *clientcmdapi.Cluster // nil until it was read; empty where there is none
}

// lookupError means that something could not be read, so that nothing is known about the NodeClass.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// endpoint is the API server as nodes reach it. The controller's own way to it, a Service, is none for a server that is
// no node yet.
func (c *cluster) endpoint() (string, error) {
	if c.config.Options.ClusterEndpoint != "" {
		return c.config.Options.ClusterEndpoint, nil
	}
	info, err := c.clusterInfo()
	if err != nil {
		return "", err
	}
	server, err := url.Parse(info.Server)
	if err != nil || server.Host == "" {
		return "", notConfigured("the user data uses .APIServerEndpoint, which is not known: set CLUSTER_ENDPOINT to the " +
			"API server as nodes reach it, for example 10.20.0.10:6443 (the ConfigMap kube-public/cluster-info does not " +
			"exist, cannot be read or names none)")
	}
	if server.Port() == "" {
		return server.Host + ":443", nil
	}
	return server.Host, nil
}

// authority is the certificate of the cluster's authority.
func (c *cluster) authority() (string, error) {
	bundle := c.config.CABundle
	if len(bundle) == 0 {
		info, err := c.clusterInfo()
		if err != nil {
			return "", err
		}
		bundle = info.CertificateAuthorityData
	}
	if len(bundle) == 0 {
		return "", notConfigured("the user data uses .CABundle or .CACertHashes, which is not known: the controller was " +
			"given no certificate authority, and the ConfigMap kube-public/cluster-info does not exist, cannot be read or " +
			"names none")
	}
	return strings.TrimSpace(string(bundle)) + "\n", nil
}

// authorityHashes are kubeadm's pins of the certificates.
func (c *cluster) authorityHashes() ([]string, error) {
	bundle, err := c.authority()
	if err != nil {
		return nil, err
	}
	certificates, err := cert.ParseCertsPEM([]byte(bundle))
	if err != nil {
		return nil, notConfigured("the certificate authority of the cluster is no certificate in PEM")
	}
	return lo.Map(certificates, func(certificate *x509.Certificate, _ int) string {
		sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		return "sha256:" + hex.EncodeToString(sum[:])
	}), nil
}

// dns are the addresses of the cluster's DNS, by the name that kubeadm gives to its Service.
func (c *cluster) dns() ([]string, error) {
	service := &corev1.Service{}
	if err := c.get(client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}, service); err != nil {
		return nil, err
	}
	addresses := lo.Without(service.Spec.ClusterIPs, "", corev1.ClusterIPNone)
	if len(addresses) == 0 {
		return nil, notConfigured("the user data uses .ClusterDNS, which is not known: set spec.kubelet.clusterDNS (the " +
			"Service kube-system/kube-dns does not exist, cannot be read or has no address)")
	}
	return addresses, nil
}

// clusterInfo reads what kubeadm publishes for nodes that join; it is empty where that does not exist.
func (c *cluster) clusterInfo() (*clientcmdapi.Cluster, error) {
	if c.info != nil {
		return c.info, nil
	}
	published := &corev1.ConfigMap{}
	if err := c.get(client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, published); err != nil {
		return nil, err
	}
	c.info = &clientcmdapi.Cluster{}
	if kubeconfig, err := clientcmd.Load([]byte(published.Data["kubeconfig"])); err == nil {
		for _, found := range kubeconfig.Clusters {
			c.info = found
		}
	}
	return c.info, nil
}

// get reads an object; one that does not exist or may not be read is left empty.
func (c *cluster) get(key client.ObjectKey, into client.Object) error {
	err := client.IgnoreNotFound(c.config.Reader.Get(c.ctx, key, into))
	if err == nil || apierrors.IsForbidden(err) {
		return nil
	}
	return &lookupError{fmt.Errorf("reading %s: %w", key, err)}
}

// kubeletLabels are the labels of Kubernetes' own domains that a kubelet may put on its node. It does not start with
// any other one, so those are left to core, which adds them when the node registers.
var kubeletLabels = sets.New(
	corev1.LabelHostname,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
	corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
)

// registration is what a kubelet registers its node with.
type registration struct {
	labels map[string]string
	taints []corev1.Taint
}

// newRegistration adds Karpenter's taint, which keeps pods away until Karpenter has put its labels and taints on the
// node, and its label that the node registers with all its taints: without it startup taints that a daemon has removed
// already come back at registration, and the node never initialises. What is not a label or taint by Kubernetes' own
// rules is an error: the kubelet would not start with it, and nothing else may reach a script.
func newRegistration(input Input) (*registration, error) {
	taints := slices.Concat(input.NodeClaim.Spec.Taints, input.NodeClaim.Spec.StartupTaints)
	r := &registration{
		labels: lo.Assign(input.Labels, map[string]string{karpv1.NodeDoNotSyncTaintsLabelKey: "true"}),
		taints: append([]corev1.Taint{karpv1.UnregisteredNoExecuteTaint},
			lo.Reject(taints, func(t corev1.Taint, _ int) bool { return t.Key == karpv1.UnregisteredTaintKey })...),
	}
	invalid := metavalidation.ValidateLabels(r.labels, field.NewPath("labels"))
	for _, taint := range r.taints { // keys and values have the form of those of labels
		invalid = append(invalid, metavalidation.ValidateLabels(map[string]string{taint.Key: taint.Value},
			field.NewPath("taints"))...)
	}
	if len(invalid) > 0 {
		return nil, fmt.Errorf("a label or taint of the node is not valid: %w", invalid.ToAggregate())
	}
	return r, nil
}

// taintsFlag is the value of the kubelet's --register-with-taints.
func (r *registration) taintsFlag() string {
	return strings.Join(lo.Map(r.taints, func(t corev1.Taint, _ int) string {
		return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
	}), ",")
}

// labelsFlag is the value of the kubelet's --node-labels, without the labels that it would not accept.
func (r *registration) labelsFlag() string {
	keys := lo.Filter(slices.Sorted(maps.Keys(r.labels)), func(key string, _ int) bool { return allowedOfKubelet(key) })
	return strings.Join(lo.Map(keys, func(key string, _ int) string { return key + "=" + r.labels[key] }), ",")
}

func allowedOfKubelet(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found || kubeletLabels.Has(key) {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
		return true
	}
	return !within("kubernetes.io") && !within("k8s.io")
}
