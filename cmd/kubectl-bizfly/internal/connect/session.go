// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect connects the plugin to what it reads: the cluster of the user's kubeconfig, the settings of the
// controller that runs there, and BizFly Cloud. Everything is optional: a command asks for what it needs, and gets an error
// that says what is missing and how to provide it.
package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

func init() {
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme.Scheme))
}

// requestTimeout bounds one request to the API server, so that an unreachable cluster is reported within seconds.
const requestTimeout = 15 * time.Second

// Session is what one run of the plugin knows.
type Session struct {
	// Cluster reads the cluster; nil where there is none, and ClusterErr says why.
	Cluster    client.Reader
	ClusterErr error
	// Changes is what Writer returns; nil makes a client of REST. Suites give one of their own.
	Changes client.Client
	// Kubernetes is for what only the typed client can read: logs, the version, access reviews.
	Kubernetes kubernetes.Interface
	// REST is how the API server is reached.
	REST *rest.Config
	// Deployment is the controller's; nil where none was found.
	Deployment *appsv1.Deployment
	// Core and Settings are the settings of the controller in the cluster, with the plugin's own environment over them.
	Core     *coreoptions.Options
	Settings *options.Options
	// DeploymentErr says why it is not known whether the cluster has a controller; nil where it is known.
	DeploymentErr error
	// Notes are what could not be read, for the user.
	Notes []string

	options Options
	// own are the credentials of files and environment, by variable.
	own map[string]string

	cloud    *Cloud
	cloudErr error
	// read is true once the catalog was asked for, and readErr what came of it.
	read    bool
	readErr error
}

// Note remembers what the user should know about the completeness of the answer.
func (s *Session) Note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if !lo.Contains(s.Notes, note) {
		s.Notes = append(s.Notes, note)
	}
}

// Options are those of the user.
type Options struct {
	// ControllerNamespace is that of the controller; empty looks for it in all.
	ControllerNamespace string
	// Region, and the files with the id and the secret of an application credential; empty takes those of the environment
	// or the controller.
	Region, IDFile, SecretFile string
	// AllowOffline lets the catalog that is built into the plugin take the place of BizFly Cloud's where there is neither a
	// cluster nor any credential. Offline does so always, and leaves the cluster out.
	AllowOffline, Offline bool
}

var errOffline = errors.New("--offline reads no cluster")

// New connects to the cluster of a kubeconfig, if there is one, and reads the controller's settings. It never fails for want of
// a cluster or of rights; it fails for settings that are not valid, and where several Deployments may be the controller.
func New(ctx context.Context, configure func() (*rest.Config, error), o Options) (*Session, error) {
	s := &Session{options: o, ClusterErr: errOffline}
	if !o.Offline {
		s.ClusterErr = s.connect(ctx, configure)
	}
	if s.ClusterErr != nil {
		s.Kubernetes = nil
	}
	return s, s.settings(ctx)
}

// NewFor makes a session over a cluster that is given. The reader may be nil.
func NewFor(ctx context.Context, reader client.Reader, o Options) (*Session, error) {
	s := &Session{Cluster: reader, options: o}
	switch {
	case o.Offline:
		s.Cluster, s.ClusterErr = nil, errOffline
	case reader == nil:
		s.ClusterErr = errors.New("no cluster was given")
	}
	return s, s.settings(ctx)
}

func (s *Session) connect(ctx context.Context, configure func() (*rest.Config, error)) error {
	config, err := configure()
	if err != nil {
		return fmt.Errorf("no cluster is configured (%w); set --kubeconfig, --context or KUBECONFIG", err)
	}
	config.Timeout = lo.CoalesceOrEmpty(config.Timeout, requestTimeout)
	config.QPS, config.Burst = 100, 200
	config.UserAgent = operator.Name + "/kubectl-bizfly"
	config.WarningHandler = rest.NoWarnings{}
	s.REST = config
	if s.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := s.Kubernetes.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx); err != nil {
		return fmt.Errorf("the cluster at %s does not answer (%w); check the kubeconfig's context, VPN and firewall", config.Host, err)
	}
	reader, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	// Only its reader is kept: what writes to the cluster has to ask for Writer.
	s.Cluster = struct{ client.Reader }{reader}
	return nil
}

// Reader returns the cluster, or the error that says why there is none.
func (s *Session) Reader() (client.Reader, error) {
	if s.Cluster == nil {
		return nil, s.ClusterErr
	}
	return s.Cluster, nil
}

// Writer returns a client that can create objects. Only what the user has confirmed may ask for it.
func (s *Session) Writer() (client.Client, error) {
	if s.Changes != nil {
		return s.Changes, nil
	}
	if s.REST == nil {
		return nil, s.ClusterErr
	}
	return client.New(s.REST, client.Options{Scheme: scheme.Scheme})
}

// List lists objects of the cluster. Its errors say which right or which definition is missing.
func (s *Session) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	reader, err := s.Reader()
	if err != nil {
		return err
	}
	return Explain(reader.List(ctx, list, opts...), "list", list)
}

// EventsOf selects the events of a kind that has no namespace. Kubernetes writes them to default; in another namespace
// they may be forged by anyone who may write there.
func EventsOf(kind string) []client.ListOption {
	return []client.ListOption{
		client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"involvedObject.kind": kind},
	}
}

// Get reads an object of the cluster. Its errors say which right or which definition is missing.
func (s *Session) Get(ctx context.Context, key client.ObjectKey, object client.Object) error {
	reader, err := s.Reader()
	if err != nil {
		return err
	}
	return Explain(reader.Get(ctx, key, object), "get", object)
}

// Resource returns how RBAC calls the kind of an object or list: "pods", "nodepools.karpenter.sh".
func Resource(object runtime.Object) string {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil || len(kinds) == 0 {
		return "objects"
	}
	kind := kinds[0]
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource().String()
}

// Explain turns an error of the API server into one that says what the user can do about it.
func Explain(err error, verb string, object runtime.Object) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return &ForbiddenError{Verb: verb, Resource: Resource(object), Err: err}
	case meta.IsNoMatchError(err):
		return &MissingDefinitionError{Resource: Resource(object), Err: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server rejected the credentials of the kubeconfig; log in again: %w", err)
	}
	return err
}

// ForbiddenError says which right is missing.
type ForbiddenError struct {
	// Verb and Resource are the right as RBAC writes it.
	Verb, Resource string
	Err            error
}

// Error names the verb and the resource.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("you may not %s %s; ask for a role that grants the verb %q on the resource %q", e.Verb, e.Resource, e.Verb, e.Resource)
}

// Unwrap returns the API server's own words.
func (e *ForbiddenError) Unwrap() error { return e.Err }

// MissingDefinitionError says that the cluster does not know a kind.
type MissingDefinitionError struct {
	Resource string
	Err      error
}

// Error names the chart that installs the definition.
func (e *MissingDefinitionError) Error() string {
	return fmt.Sprintf("the cluster has no %s; install the chart karpenter-provider-bizflycloud-crd", e.Resource)
}

// Unwrap returns the client's own words.
func (e *MissingDefinitionError) Unwrap() error { return e.Err }

// IsMissing reports whether the error says that the cluster does not know a kind.
func IsMissing(err error) bool {
	var missing *MissingDefinitionError
	return errors.As(err, &missing)
}

// IsForbidden reports whether the error says that a right is missing.
func IsForbidden(err error) bool {
	var forbidden *ForbiddenError
	return errors.As(err, &forbidden)
}
