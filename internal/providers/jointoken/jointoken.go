// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jointoken issues the bootstrap token with which one server joins: a Secret of kube-system that the API server
// accepts as a credential for a short time. One is issued per attempt to launch, and revoked once the node has registered;
// the garbage collector of Kubernetes deletes it with its NodeClaim, and its expiration ends it in any case.
package jointoken

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// idLength and secretLength are how long the parts of a bootstrap token are.
const idLength, secretLength = 6, 16

// Request is the attempt that a token is for.
type Request struct {
	// NodeClaim owns the Secret.
	NodeClaim *karpv1.NodeClaim
	// NodeName is the name of the future node, for users.
	NodeName string
	// Attempt is from 1.
	Attempt int
	TTL     time.Duration
}

// Provider issues and revokes tokens.
type Provider interface {
	// Issue returns a new token for the attempt, id.secret.
	Issue(ctx context.Context, request Request) (string, error)
	// Revoke deletes the tokens of a NodeClaim that this process has issued. Those of an earlier one expire.
	Revoke(ctx context.Context, nodeClaim types.UID) error
}

// DefaultProvider is the Provider over the API server.
type DefaultProvider struct {
	// writer creates and deletes Secrets of kube-system, which is all that the controller's Role grants there.
	writer client.Writer
	clock  clock.Clock
	// groups are those of each token beside system:bootstrappers. A group without a binding may do nothing.
	groups string

	mu     sync.Mutex // not held while anything is written
	issued []*issue
}

// issue is a token that was issued.
type issue struct {
	nodeClaim types.UID
	secret    *corev1.Secret
	ends      time.Time
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns a provider whose tokens have the given groups: those that the chart's admission policy accepts.
func NewDefaultProvider(writer client.Writer, clk clock.Clock, groups []string) *DefaultProvider {
	return &DefaultProvider{writer: writer, clock: clk, groups: strings.Join(groups, ",")}
}

// Issue implements Provider. What has ended is forgotten, which bounds what is remembered.
func (p *DefaultProvider) Issue(ctx context.Context, request Request) (string, error) {
	now, random := p.clock.Now(), strings.ToLower(rand.Text())
	id, secret, ends := random[:idLength], random[idLength:idLength+secretLength], now.Add(request.TTL)
	object := p.secretOf(request, id, secret, ends)
	if err := p.writer.Create(ctx, object); err != nil {
		return "", fmt.Errorf(
			"creating the join token of NodeClaim %s, a Secret of %s (the chart's value joinTokens.enabled grants it): %w",
			request.NodeClaim.Name, metav1.NamespaceSystem, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued = append(lo.Filter(p.issued, func(i *issue, _ int) bool { return i.ends.After(now) }),
		&issue{nodeClaim: request.NodeClaim.UID, secret: object, ends: ends})
	return id + "." + secret, nil
}

// secretOf returns the Secret by which the API server accepts the token until it ends.
func (p *DefaultProvider) secretOf(request Request, id, secret string, ends time.Time) *corev1.Secret {
	claim := request.NodeClaim
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      "bootstrap-token-" + id,
			Labels: map[string]string{
				"app.kubernetes.io/managed-by": "karpenter",
				karpapis.Group + "/nodeclaim":  claim.Name,
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: karpapis.Group + "/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID},
			},
		},
		Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id":                       id,
			"token-secret":                   secret,
			"expiration":                     ends.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			// kubeadm finds the API server by a ConfigMap that is signed with the token.
			"usage-bootstrap-signing": "true",
			"auth-extra-groups":       p.groups,
			"description": fmt.Sprintf("Karpenter: node %s of NodeClaim %s, attempt %d", request.NodeName, claim.Name,
				request.Attempt),
		},
	}
}

// Revoke implements Provider. Only the object that was created is deleted, not another one of its name.
func (p *DefaultProvider) Revoke(ctx context.Context, nodeClaim types.UID) error {
	p.mu.Lock()
	issues := lo.Filter(p.issued, func(i *issue, _ int) bool { return i.nodeClaim == nodeClaim })
	p.mu.Unlock()
	var errs error
	for _, i := range issues {
		err := client.IgnoreNotFound(p.writer.Delete(ctx, i.secret, client.Preconditions{UID: &i.secret.UID}))
		if err != nil && !apierrors.IsConflict(err) {
			errs = errors.Join(errs, fmt.Errorf("deleting the join token %s: %w", client.ObjectKeyFromObject(i.secret), err))
		}
	}
	if errs == nil {
		p.mu.Lock()
		p.issued = lo.Without(p.issued, issues...) // a launch may have added one
		p.mu.Unlock()
	}
	return errs
}
