// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestKubectl(t *testing.T) {
	suite.ReadsRepository()
	suite.Run(t, "Kubectl")
}

const clusterUID = "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"

// fixture is a cloud and a cluster in memory, and what one run of the plugin printed.
type fixture struct {
	*cloud.Sandbox
	objects client.Client
	// reader is what the plugin reads; nil is an unreachable cluster.
	reader client.Reader
	// change changes the session of the next run.
	change   func(*connect.Session)
	stdin    string
	out, err string
}

// f is the one of a spec.
var f *fixture

var _ = BeforeEach(func() { f = newFixture() })

// setEnv sets variables until the end of the spec.
var setEnv func(key, value string)

// unsetEnv takes a variable away until the end of the spec.
func unsetEnv(key string) {
	GinkgoHelper()
	setEnv(key, "")
	Expect(os.Unsetenv(key)).To(Succeed())
}

// newCluster returns a cluster in memory, with what an API server sets and selects by.
func newCluster() client.Client {
	uids := 0
	return unit.FakeClientBuilder().WithReturnManagedFields().
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Name} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				uids++
				object.SetUID(lo.CoalesceOrEmpty(object.GetUID(), types.UID(fmt.Sprintf("uid-%d", uids))))
				object.SetGeneration(max(object.GetGeneration(), 1))
				if created := object.GetCreationTimestamp(); created.IsZero() {
					object.SetCreationTimestamp(metav1.Now())
				}
				return c.Create(ctx, object, options...)
			},
		}).Build()
}

func newFixture(modes ...string) *fixture {
	f := &fixture{Sandbox: cloud.Start(cloud.Options{Modes: modes}), objects: newCluster()}
	setEnv = GinkgoT().Setenv
	DeferCleanup(f.Close)
	f.reader = f.objects
	f.environment()
	f.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: clusterUID}})
	return f
}

// environment sets what the plugin reads of its shell, as for this cloud.
func (f *fixture) environment() {
	credentials, bke := f.Credentials(), f.BKE()
	for key, value := range map[string]string{
		"BIZFLY_CLOUD_API_URL": f.APIURL, "BIZFLY_CLOUD_ALLOW_HTTP": "true", "BIZFLY_CLOUD_REGION": credentials.Region,
		"BIZFLY_CLOUD_APP_CRED_ID": credentials.AppCredID, "BIZFLY_CLOUD_APP_CRED_SECRET": credentials.AppCredSecret,
		"BKE_CLUSTER_ID": bke.ClusterUID, "BKE_CLUSTER_TOKEN": bke.ClusterToken, "BKE_JOIN_ENDPOINT": bke.JoinEndpoint, "BKE_LOG_ENDPOINT": bke.LogEndpoint,
	} {
		setEnv(key, value)
	}
}

// withoutCredentials takes the way to the cloud away.
func withoutCredentials() {
	for _, key := range []string{"BIZFLY_CLOUD_API_URL", "BIZFLY_CLOUD_REGION", "BIZFLY_CLOUD_APP_CRED_ID", "BIZFLY_CLOUD_APP_CRED_SECRET"} {
		setEnv(key, "")
	}
}

// withoutBKE takes away what names BKE's cluster.
func withoutBKE() {
	for _, key := range []string{"BKE_CLUSTER_ID", "BKE_CLUSTER_TOKEN", "BKE_JOIN_ENDPOINT", "BKE_LOG_ENDPOINT"} {
		unsetEnv(key)
	}
}

func (f *fixture) put(objects ...client.Object) {
	GinkgoHelper()
	ctx := context.Background()
	for _, object := range objects {
		// The status is written with the rest, whatever the object was read from.
		stored := object.DeepCopyObject().(client.Object)
		if f.objects.Get(ctx, client.ObjectKeyFromObject(object), stored) == nil && len(stored.GetFinalizers()) > 0 {
			stored.SetFinalizers(nil)
			Expect(f.objects.Update(ctx, stored)).To(Succeed())
		}
		Expect(client.IgnoreNotFound(f.objects.Delete(ctx, object))).To(Succeed())
		deleting := object.GetDeletionTimestamp() != nil
		object.SetResourceVersion("")
		object.SetDeletionTimestamp(nil)
		Expect(f.objects.Create(ctx, object)).To(Succeed())
		if deleting {
			Expect(f.objects.Delete(ctx, object)).To(Succeed())
		}
	}
}

// get reads an object of the cluster.
func get[T any, P interface {
	*T
	client.Object
}](f *fixture, namespace, name string) P {
	GinkgoHelper()
	object := P(new(T))
	Expect(f.objects.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	return object
}

// failLists lets no list of a kind be read.
func (f *fixture) failLists(of client.ObjectList, failed error) {
	f.reader = interceptor.NewClient(f.objects.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reflect.TypeOf(list) == reflect.TypeOf(of) {
				return failed
			}
			return c.List(ctx, list, options...)
		},
	})
}

// failGets lets no object of a kind be read.
func (f *fixture) failGets(of client.Object, failed error) {
	f.reader = interceptor.NewClient(f.objects.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if reflect.TypeOf(object) == reflect.TypeOf(of) {
				return failed
			}
			return c.Get(ctx, key, object, options...)
		},
	})
}

// apply stores manifests in the cluster.
func (f *fixture) apply(text string) {
	GinkgoHelper()
	set, err := input.Read(strings.NewReader(text), "-")
	Expect(err).ToNot(HaveOccurred())
	f.put(set.Objects...)
}

// run runs the plugin and returns its exit status.
func (f *fixture) run(args ...string) int {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	app := cli.For(f.reader, strings.NewReader(f.stdin), &out, &errOut)
	app.PoolInterval = time.Millisecond
	if open := app.Connect; f.change != nil {
		app.Connect = func(ctx context.Context, o connect.Options) (*connect.Session, error) {
			s, err := open(ctx, o)
			if err == nil {
				f.change(s)
			}
			return s, err
		}
	}
	status := app.Run(context.Background(), args...)
	f.out, f.err = out.String(), errOut.String()
	return status
}

// answer runs the plugin and decodes what it printed.
func answer[T any](f *fixture, args ...string) T {
	GinkgoHelper()
	var decoded T
	status := f.run(append(args, "-o", "json")...)
	Expect(status).To(BeNumerically("<", cli.ExitFailure), f.err)
	Expect(json.Unmarshal([]byte(f.out), &decoded)).To(Succeed(), f.out)
	return decoded
}

// install makes the cluster one in which the controller runs and nothing is wrong.
func (f *fixture) install() {
	GinkgoHelper()
	for _, crd := range apis.CRDs {
		f.put(crd)
	}
	f.put(
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CSIBlockDriver}},
		clusterRole(),
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: operator.Name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: operator.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: operator.Name, Namespace: "karpenter"}},
		},
		f.controller(),
	)
}

// clusterRole is what the manifests grant to the controller, and others.
func clusterRole(others ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{}
	Expect(yaml.Unmarshal(config.ClusterRole, role)).To(Succeed())
	role.Rules = append(role.Rules, others...)
	return role
}

// controller is the Deployment of the controller.
func (f *fixture) controller(env ...corev1.EnvVar) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": operator.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: operator.Name, Namespace: "karpenter",
			Labels: lo.Assign(labels, map[string]string{"app.kubernetes.io/version": coreoperator.Version})},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			ServiceAccountName: operator.Name, Containers: []corev1.Container{{Name: "controller", Image: "registry/" + operator.Name + ":" + coreoperator.Version,
				Env: env}},
		}}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
}

// pools is a NodePool over a NodeClass of defaults.
const pools = `
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: BizflyNodeClass
metadata: {name: default}
spec: {}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.bizflycloud.vn, kind: BizflyNodeClass, name: default}
      requirements:
      - {key: karpenter.bizflycloud.vn/instance-category, operator: In, values: [premium]}
`

// web is a Deployment of six pods.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        resources: {requests: {cpu: "1", memory: 2Gi}}
`
