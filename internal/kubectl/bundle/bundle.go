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

// Package bundle writes the archive that a bug report needs. Secrets never enter it: Secrets and the values of environment
// variables are left out, known credentials are replaced wherever they appear, and of user data only its hash is kept.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/doctor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const removed = "(removed)"

// maxLog bounds the log of one container.
const maxLog = 5 << 20

// Bundle collects files.
type Bundle struct {
	archive *tar.Writer
	secrets []string
	now     time.Time
	// Files are the names of what was written, Missing what could not be read, with the reason.
	Files   []string
	Missing []string
}

// Write writes the archive.
func Write(ctx context.Context, s *session.Session, to io.Writer, now time.Time) (*Bundle, error) {
	compressed := gzip.NewWriter(to)
	b := &Bundle{archive: tar.NewWriter(compressed), now: now, secrets: secrets(ctx, s)}
	if err := b.collect(ctx, s); err != nil {
		return nil, err
	}
	if err := b.archive.Close(); err != nil {
		return nil, err
	}
	return b, compressed.Close()
}

func (b *Bundle) collect(ctx context.Context, s *session.Session) error {
	if err := b.value("version.yaml", map[string]any{"plugin": operator.Version(), "skew": s.Skew(), "collected": b.now.UTC()}); err != nil {
		return err
	}
	if err := b.value("doctor.yaml", doctor.Examine(ctx, s)); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{
		&v1alpha1.BizflyNodeClassList{}, &v1alpha1.ProviderConfigList{}, &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.EventList{},
	} {
		if err := b.objects(ctx, s, list); err != nil {
			return err
		}
	}
	if s.Deployment != nil {
		deployment := s.Deployment.DeepCopy()
		clean(deployment)
		if err := b.value("controller/deployment.yaml", deployment); err != nil {
			return err
		}
		if err := b.logs(ctx, s); err != nil {
			return err
		}
	}
	if cloud, err := s.Cloud(ctx); err != nil {
		b.miss("catalog", err)
	} else if snapshot, err := cloud.Catalog.Snapshot(); err != nil {
		b.miss("catalog", err)
	} else if err := b.value("cloud/catalog.yaml", snapshot); err != nil {
		return err
	}
	return b.file("missing.txt", []byte(strings.Join(append(b.Missing, s.Notes...), "\n")+"\n"))
}

func (b *Bundle) miss(what string, err error) {
	b.Missing = append(b.Missing, fmt.Sprintf("%s: %s", what, err))
}

// objects writes a list.
func (b *Bundle) objects(ctx context.Context, s *session.Session, list client.ObjectList) error {
	name := session.Resource(list)
	if err := s.List(ctx, list); err != nil {
		b.miss(name, err)
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		clean(item.(client.Object))
	}
	return b.value("cluster/"+name+".yaml", items)
}

// clean removes what is secret or noise.
func clean(object client.Object) {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(annotations)
}

// logs writes the log of each replica.
func (b *Bundle) logs(ctx context.Context, s *session.Session) error {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(s.Deployment.Namespace), client.MatchingLabels(s.Deployment.Spec.Selector.MatchLabels)); err != nil {
		b.miss("logs", err)
		return nil
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		stream, err := s.Kubernetes.CoreV1().Pods(pod.Namespace).
			GetLogs(pod.Name, &corev1.PodLogOptions{Container: "controller", LimitBytes: lo.ToPtr(int64(maxLog))}).Stream(ctx)
		if err != nil {
			b.miss("the log of "+pod.Name, session.Explain(err, "get", pod))
			continue
		}
		text, err := io.ReadAll(io.LimitReader(stream, maxLog))
		_ = stream.Close()
		if err != nil {
			b.miss("the log of "+pod.Name, err)
			continue
		}
		if err := b.file("controller/"+pod.Name+".log", text); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bundle) value(name string, value any) error {
	var plain any
	text, err := yaml.Marshal(value)
	if err == nil {
		err = yaml.Unmarshal(text, &plain)
	}
	if err == nil {
		text, err = yaml.Marshal(cleanUserData(plain))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return b.file(name, text)
}

// file writes a file, without anything secret.
func (b *Bundle) file(name string, content []byte) error {
	content = b.redact(content)
	header := &tar.Header{Name: "support-bundle/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now}
	if err := b.archive.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := b.archive.Write(content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	b.Files = append(b.Files, name)
	return nil
}

// secretFields match lines of YAML, JSON and environment whose value may be secret.
var secretFields = regexp.MustCompile(`(?i)((?:password|secret|token|app_cred_secret|x-auth-token|x-cluster-token|private[_-]?key|authorization)` +
	`["']?\s*[:=]\s*)("[^"]*"|'[^']*'|Bearer \S+|[^\s,}\]]+)`)

// keys are private keys and bootstrap tokens, which look alike everywhere.
var (
	privateKeys     = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)
	bootstrapTokens = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
)

// redact replaces known secrets first, and then what looks like one.
func (b *Bundle) redact(content []byte) []byte {
	for _, secret := range b.secrets {
		content = bytes.ReplaceAll(content, []byte(secret), []byte(removed))
	}
	content = privateKeys.ReplaceAll(content, []byte(removed))
	content = bootstrapTokens.ReplaceAll(content, []byte(removed))
	return secretFields.ReplaceAllFunc(content, func(match []byte) []byte {
		parts := secretFields.FindSubmatch(match)
		return append(slices.Clone(parts[1]), removed...)
	})
}

// secrets are the values that the plugin itself knows: credentials, tokens, and every environment variable of the controller
// whose name says so.
func secrets(ctx context.Context, s *session.Session) []string {
	effective, _ := s.Effective(ctx)
	known := []string{s.Settings.Password, s.Settings.AppCredSecret, s.Settings.BKEClusterToken, effective.Password, effective.AppCredSecret}
	if s.Deployment != nil {
		for _, container := range s.Deployment.Spec.Template.Spec.Containers {
			for _, variable := range container.Env {
				if regexp.MustCompile(`(?i)secret|token|password|key`).MatchString(variable.Name) {
					known = append(known, variable.Value)
				}
			}
		}
	}
	const shortest = 6 // shorter ones would tear holes into every word
	known = lo.Filter(lo.Uniq(known), func(secret string, _ int) bool { return len(secret) >= shortest })
	// The longest first, since one may be a part of another.
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	return known
}
