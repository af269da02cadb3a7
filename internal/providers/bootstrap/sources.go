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

package bootstrap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	fieldUserData     = "spec.userData"
	fieldUserDataFrom = "spec.userDataFrom"

	defaultSecretKey = "userData"
	// maxTemplateBytes bounds a template from a Secret; what it makes is bounded by what the cloud accepts.
	maxTemplateBytes = 64 * 1024
)

// source is one template.
type source struct {
	// field is what errors call it.
	field string
	text  string
}

// sources are the templates of a NodeClass in the order in which their parts are put together.
func (p *DefaultProvider) sources(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]source, error) {
	spec := nodeClass.Spec
	var sources []source
	if spec.UserDataFrom != nil {
		from, err := p.fromSecret(ctx, *spec.UserDataFrom)
		if err != nil {
			return nil, err
		}
		sources = append(sources, *from)
	}
	if spec.UserData != nil {
		sources = append(sources, source{field: fieldUserData, text: *spec.UserData})
	}
	for _, s := range sources {
		if strings.TrimSpace(s.text) == "" {
			return nil, invalidUserData(s.field, "", "it is empty; leave it out, or let it make user data")
		}
	}
	if len(sources) == 0 && mode(nodeClass) == v1alpha1.BootstrapModeCustom {
		return nil, invalidUserData(fieldUserData, "", "it is empty, and so is userDataFrom; in Custom mode they make the server join the cluster")
	}
	return sources, nil
}

// fromSecret reads a template from a Secret of the controller's own namespace. Those that it may read are an option, so that
// a Secret that it was not meant to read is rejected here with the remedy, whatever its Role says.
func (p *DefaultProvider) fromSecret(ctx context.Context, selector v1alpha1.SecretKeySelector) (*source, error) {
	key := cmp.Or(selector.Key, defaultSecretKey)
	reject := func(format string, args ...any) error {
		return &ValidationError{Reason: ReasonUserDataSecret, Message: fmt.Sprintf("%s.name %q: ", fieldUserDataFrom, selector.Name) + fmt.Sprintf(format, args...)}
	}
	granted := func() error {
		return reject("the controller may not read this Secret; name it in the chart's value userDataSecrets (USER_DATA_SECRET_NAMES, now %q)",
			strings.Join(p.config.UserDataSecretNames, ","))
	}
	if p.config.Reader == nil || !slices.Contains(p.config.UserDataSecretNames, selector.Name) {
		return nil, granted()
	}
	secret := &corev1.Secret{}
	switch err := p.config.Reader.Get(ctx, client.ObjectKey{Namespace: p.config.Namespace, Name: selector.Name}, secret); {
	case apierrors.IsNotFound(err):
		return nil, reject("there is no such Secret in the controller's namespace %s; make it", p.config.Namespace)
	case apierrors.IsForbidden(err):
		return nil, granted()
	case err != nil:
		return nil, &lookupError{fmt.Errorf("reading the Secret of %s: %w", fieldUserDataFrom, err)}
	}
	text, found := secret.Data[key]
	if !found {
		return nil, reject("the Secret has no key %q; set %s.key or add it", key, fieldUserDataFrom)
	}
	if len(text) > maxTemplateBytes {
		return nil, reject("its key %q has %d bytes, at most %d are read", key, len(text), maxTemplateBytes)
	}
	return &source{field: fieldUserDataFrom, text: string(text)}, nil
}

// hashOf identifies the templates: where they come from does not matter as long as they say the same in the same order.
func hashOf(sources []source) string {
	if len(sources) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, s := range sources {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(s.text), s.text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
