// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle writes the archive that a bug report needs. Secrets never enter it: Secrets, the values of environment variables and
// the events of other namespaces are left out, package redact replaces what is secret wherever it appears, and of user data only its
// hash is kept.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// container is the controller's.
	container = "controller"
	// maxLines and maxLog bound the log of one container. The API server cuts off the end of what has too many bytes, but the beginning of what has
	// too many lines.
	maxLines, maxLog = 10_000, 5 << 20
)

// Bundle collects files.
type Bundle struct {
	archive  *tar.Writer
	redactor *redact.Redactor
	now      time.Time
	// Files are the names of what was written, Missing what could not be read, with the reason.
	Files   []string
	Missing []string
}

// Write writes the archive.
func Write(ctx context.Context, s *connect.Session, to io.Writer, now time.Time) (*Bundle, error) {
	compressed := gzip.NewWriter(to)
	b := &Bundle{archive: tar.NewWriter(compressed), now: now, redactor: redactor(ctx, s)}
	if err := b.collect(ctx, s); err != nil {
		return nil, err
	}
	if err := b.archive.Close(); err != nil {
		return nil, err
	}
	return b, compressed.Close()
}

func (b *Bundle) collect(ctx context.Context, s *connect.Session) error {
	if err := b.value("version.yaml", map[string]any{"plugin": operator.Version(), "skew": s.Skew(), "collected": b.now.UTC()}); err != nil {
		return err
	}
	if err := b.value("doctor.yaml", rules.Examine(ctx, s)); err != nil {
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
	} else if err := b.value("cloud/catalog.yaml", cloud.Snapshot); err != nil {
		return err
	}
	return b.text("missing.txt", strings.Join(append(b.Missing, s.Notes...), "\n")+"\n")
}

func (b *Bundle) miss(what string, err error) {
	b.Missing = append(b.Missing, fmt.Sprintf("%s: %s", what, err))
}

// objects writes a list.
func (b *Bundle) objects(ctx context.Context, s *connect.Session, list client.ObjectList) error {
	name := connect.Resource(list)
	if err := s.List(ctx, list); err != nil {
		b.miss(name, err)
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	items = lo.Filter(items, func(item runtime.Object, _ int) bool {
		event, ok := item.(*corev1.Event)
		return !ok || concerns(event, s)
	})
	for _, item := range items {
		clean(item.(client.Object))
	}
	return b.value("cluster/"+name+".yaml", items)
}

// kinds are those without a namespace whose events are kept. Kubernetes writes them to default.
var kinds = []string{"Node", "NodePool", "NodeClaim", "NodeOverlay", "BizflyNodeClass", "ProviderConfig"}

// concerns reports whether an event is about the controller, a Node or an object of ours: those of other workloads are not ours to send.
func concerns(event *corev1.Event, s *connect.Session) bool {
	if event.Namespace == metav1.NamespaceDefault && lo.Contains(kinds, event.InvolvedObject.Kind) {
		return true
	}
	return s.Deployment != nil && event.InvolvedObject.Namespace == s.Deployment.Namespace
}

// clean removes what is noise.
func clean(object client.Object) {
	object.SetManagedFields(nil)
}

// logs writes the log of each replica.
func (b *Bundle) logs(ctx context.Context, s *connect.Session) error {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(s.Deployment.Namespace), client.MatchingLabels(s.Deployment.Spec.Selector.MatchLabels)); err != nil {
		b.miss("logs", err)
		return nil
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if err := b.log(ctx, s, pod, pod.Name+".log", false); err != nil {
			return err
		}
		if lo.ContainsBy(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container && c.RestartCount > 0 }) {
			if err := b.log(ctx, s, pod, pod.Name+".previous.log", true); err != nil {
				return err
			}
		}
	}
	return nil
}

// log writes the end of the log of one replica, or that of its container before the last restart.
func (b *Bundle) log(ctx context.Context, s *connect.Session, pod *corev1.Pod, name string, previous bool) error {
	stream, err := s.Kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: lo.ToPtr(int64(maxLines)), LimitBytes: lo.ToPtr(int64(maxLog)),
	}).Stream(ctx)
	if err != nil {
		b.miss(name, connect.Explain(err, "get", pod))
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(stream, maxLog))
	_ = stream.Close()
	if err != nil {
		b.miss(name, err)
		return nil
	}
	return b.text("controller/"+name, string(text))
}

// value writes an object as YAML without anything secret.
func (b *Bundle) value(name string, value any) error {
	var plain any
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err == nil {
		text, err = output.EncodeYAML(b.scrub(plain))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return b.file(name, text)
}

// text writes a file without anything secret.
func (b *Bundle) text(name, content string) error {
	return b.file(name, []byte(Redact(b.redactor, content)))
}

func (b *Bundle) file(name string, content []byte) error {
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

// redactor knows the secrets that the plugin itself knows: credentials, tokens, user data, and every environment variable of the
// controller whose name says so.
func redactor(ctx context.Context, s *connect.Session) *redact.Redactor {
	r := &redact.Redactor{}
	effective, _ := s.Effective(ctx)
	r.LearnCredentials(s.Settings.Password, s.Settings.AppCredSecret, s.Settings.BKEClusterToken, effective.Password, effective.AppCredSecret)
	secret := &corev1.Secret{}
	if s.Get(ctx, client.ObjectKey{Namespace: s.Settings.Namespace, Name: s.Settings.CredentialsSecretName}, secret) == nil {
		for key, value := range secret.Data {
			if secretKey(key) {
				r.LearnCredentials(string(value)) // which user data does not push out
			}
		}
	}
	if s.Deployment != nil {
		for _, container := range s.Deployment.Spec.Template.Spec.Containers {
			for _, variable := range container.Env {
				if secretKey(variable.Name) {
					r.LearnRequest(variable.Value)
				}
			}
		}
	}
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	_ = s.List(ctx, nodeClasses) // collect reports the error
	for i := range nodeClasses.Items {
		r.LearnRequest(lo.FromPtr(nodeClasses.Items[i].Spec.UserData))
	}
	return r
}
