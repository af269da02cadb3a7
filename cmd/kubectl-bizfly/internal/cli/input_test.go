// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// forbidden is the answer of an API server to a user without a right.
var forbidden = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))

var _ = Describe("bad input", func() {
	Describe("a real API server without the custom resource definitions", Ordered, func() {
		var environment *envtest.Environment
		var config *rest.Config
		BeforeAll(func() {
			suite.UseControlPlane()
			environment = &envtest.Environment{}
			config = lo.Must(environment.Start())
			DeferCleanup(environment.Stop)
		})

		It("should name the chart that installs them", func() {
			f.reader = lo.Must(client.New(config, client.Options{Scheme: scheme.Scheme}))
			Expect(f.run("why", "nodeclaim/x")).To(Equal(cli.ExitFailure))
			Expect(f.err).To(ContainSubstring("the cluster has no nodeclaims.karpenter.sh; install the chart karpenter-provider-bizflycloud-crd"))
		})

		It("should do without them what it can", func() {
			f.reader = lo.Must(client.New(config, client.Options{Scheme: scheme.Scheme}))
			Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
			Expect(f.err).To(ContainSubstring("NodeClaims are not shown"))
			Expect(f.run("doctor")).To(BeNumerically("<", cli.ExitFailure), f.err)
		})

		It("should say which verb on which resource is missing", func() {
			user := lo.Must(environment.AddUser(envtest.User{Name: "nobody"}, nil))
			f.reader = lo.Must(client.New(user.Config(), client.Options{Scheme: scheme.Scheme}))
			Expect(f.run("top")).To(Equal(cli.ExitFailure))
			Expect(f.err).To(ContainSubstring(`you may not list nodes; ask for a role that grants the verb "list" on the resource "nodes"`))
			Expect(f.run("doctor")).To(Equal(cli.ExitOK), f.out)
			Expect(f.out).To(ContainSubstring(`- controller: not checked: you may not list deployments.apps; ask for a role that grants the verb "list"`))
		})
	})

	It("should say that a cluster is unreachable, and go on with what needs none", func() {
		kubeconfig := written("config", `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],`+
			`"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"x","user":{}}]}`)
		run := func(args ...string) (int, string) {
			var out, errOut bytes.Buffer
			app := &cli.App{In: &bytes.Buffer{}, Out: &out, Err: &errOut}
			return app.Run(context.Background(), append(args, "--kubeconfig", kubeconfig)...), out.String() + errOut.String()
		}
		status, text := run("top")
		Expect(status).To(Equal(cli.ExitFailure))
		Expect(text).To(ContainSubstring("the cluster at https://127.0.0.1:1 does not answer"))
		status, text = run("flavors")
		Expect(status).To(Equal(cli.ExitOK), text)
		Expect(f.Requests()).ToNot(BeEmpty())
	})

	It("should say how to give credentials where there are none", func() {
		withoutCredentials()
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("set BIZFLY_CLOUD_REGION with BIZFLY_CLOUD_APP_CRED_ID"))
	})

	It("should do without credentials what it can", func() {
		f.apply(pools + "---\n" + web)
		withoutCredentials()
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("prices are those at launch"))
		Expect(f.run("why", "web-0", "-n", "shop")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("flavors and offerings were not looked at"))
		Expect(f.out).To(ContainSubstring("NodePool default"))
	})

	DescribeTable("should name the file and what is wrong in it", func(name, text, message string) {
		Expect(f.run("plan", "-f", written(name, text))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring(name), ContainSubstring(message)))
	},
		Entry("no YAML", "bad.yaml", "a: b\n---\n{", "bad.yaml:3: it is not YAML"),
		Entry("no kind", "bad.yaml", "a: b\n", "it has no apiVersion and kind"),
		Entry("no name", "bad.yaml", "apiVersion: v1\nkind: Pod\n", "metadata.name is empty"),
		Entry("an unknown field", "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {container: []}\n", "container"),
		Entry("what the definition forbids", "bad.yaml",
			"apiVersion: karpenter.bizflycloud.vn/v1alpha1\nkind: BizflyNodeClass\nmetadata: {name: x}\nspec: {billingPlan: spot}\n", "spec.billingPlan"),
		Entry("too many replicas", "bad.yaml",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 2000000000, selector: {}, template: {}}\n", "replicas"),
		Entry("too many claims of replicas", "bad.yaml", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x}\nspec:\n  replicas: 2000\n"+
			"  selector: {}\n  template: {}\n  volumeClaimTemplates:\n"+strings.Repeat("  - {metadata: {name: c}, spec: {}}\n", 100),
			"2000 replicas with 100 claims each: these would be more than 200000 pods and claims"),
		Entry("too large replicas", "bad.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec:\n  replicas: 10000\n"+
			"  selector: {}\n  template: {metadata: {annotations: {a: "+strings.Repeat("a", 32<<10)+"}}}\n", "more than 256 MiB"),
		Entry("an unknown column", "bad.csv", "name,cpu,memory,color\n", `unknown column "color"`),
		Entry("a missing column", "bad.csv", "name,cpu\n", `the column "memory" is missing`),
		Entry("no quantity", "bad.csv", "name,cpu,memory\na,much,1Gi\n", "line 2: cpu \"much\" is no quantity"),
		Entry("no number of pods", "bad.csv", "name,cpu,memory,count\na,1,1Gi,many\n", "line 2: count"),
	)

	It("should reject a file of alternatives that has nothing to compare", func() {
		f.apply(pools)
		Expect(f.run("plan", "compare", written("web.yaml", web))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("neither a NodePool nor a BizflyNodeClass"))
	})

	It("should leave NodePools of other providers out of alternatives, and name them", func() {
		f.apply(pools + "---\n" + web)
		foreign := strings.NewReplacer("group: karpenter.bizflycloud.vn, kind: BizflyNodeClass", "group: karpenter.k8s.aws, kind: EC2NodeClass",
			"name: default}\nspec:\n  template", "name: general}\nspec:\n  template").Replace(pools)
		_, foreign, _ = strings.Cut(foreign, "---\n")
		Expect(f.run("plan", "compare", written("both.yaml", pools+"---\n"+foreign))).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("NodePools of other providers are left out: general (EC2NodeClass of karpenter.k8s.aws)"))
		Expect(f.err).ToNot(ContainSubstring("is left out: its BizflyNodeClass"))
		Expect(f.run("plan", "compare", written("aws.yaml", foreign))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("neither a NodePool nor a BizflyNodeClass to compare (it has 1 NodePool)"))
	})

	DescribeTable("should take no list that failed for an empty one", func(of client.ObjectList, failed error, message string, args ...string) {
		f.apply(pools + "---\n" + web)
		f.failLists(of, failed)
		Expect(f.run(args...)).To(Equal(cli.ExitFailure), f.out)
		Expect(f.err).To(ContainSubstring(message))
	},
		Entry("NodePools of a plan", &karpv1.NodePoolList{}, context.DeadlineExceeded, "copying the cluster: context deadline exceeded", "plan"),
		Entry("NodeClaims of a plan", &karpv1.NodeClaimList{}, context.DeadlineExceeded, "copying the cluster: context deadline exceeded", "plan", "--pending"),
		Entry("volumes of a pod", &corev1.PersistentVolumeList{}, context.DeadlineExceeded, "copying the cluster: context deadline exceeded",
			"why", "web-0", "-n", "shop"),
		Entry("NodeClaims of a repack", &karpv1.NodeClaimList{}, forbidden,
			"which nodes may be replaced is not known: you may not list nodeclaims.karpenter.sh", "repack"),
		Entry("NodePools of a repack", &karpv1.NodePoolList{}, forbidden,
			"which nodes may be replaced is not known: you may not list nodepools.karpenter.sh", "repack"),
	)

	It("should plan without what may not be read, and say so", func() {
		f.apply(pools + "---\n" + web)
		f.failLists(&karpv1.NodeClaimList{}, forbidden)
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("you may not list nodeclaims.karpenter.sh"))
	})

	It("should reject an unknown output", func() {
		Expect(f.run("top", "-o", "xml")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("use table, json or yaml"))
	})
})

var _ = Describe("why", func() {
	It("should say that a pending pod can be launched, and with what", func() {
		f.apply(pools + "---\n" + web)
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Outcome).To(MatchRegexp(`can launch a \S+ in HN\d for [\d,]+ VND per hour`))
		Expect(p.Pools).To(HaveLen(1))
		Expect(p.Pools[0].Fits).To(BeTrue())
	})

	It("should say that limits leave nothing for the pod, with and without knowing the flavors", func() {
		f.apply(pools + "---\n" + web)
		limited("10", "8")(f)
		limits := func() []rules.Check {
			return lo.Filter(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Pools[0].Checks,
				func(c rules.Check, _ int) bool { return c.Name == "limits" && !c.OK && !c.Unknown })
		}
		Expect(limits()).To(BeEmpty())
		limited("10", "9")(f) // the smallest flavor fits, and is too small for the pod
		Expect(limits()).To(ConsistOf(HaveField("Detail", HavePrefix("of the flavors that are large enough, no further node fits"))))
		limited("10", "9500m")(f)
		Expect(limits()).To(ConsistOf(HaveField("Detail", "its limits are reached: no further node fits into them; in use: 9500m of 10 cpu")))
		withoutCredentials()
		Expect(limits()).To(BeEmpty())
		limited("10", "10")(f)
		Expect(limits()).To(HaveLen(1))
	})

	DescribeTable("should say what kube-scheduler does with the pod:", func(nominated, reason, state string) {
		f.apply(pools + "---\n" + web)
		changePod(f, func(pod *corev1.Pod) {
			pod.Status.NominatedNodeName, pod.Status.Conditions = nominated, nil
			if reason != "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "timed out"}}
			}
		})
		Expect(answer[rules.Pod](f, "why", "web-0", "-n", "shop").State).To(ContainSubstring(state))
	},
		Entry("nothing yet", "", "", "has not tried it yet"),
		Entry("it found no node", "", corev1.PodReasonUnschedulable, "kube-scheduler found no node: timed out"),
		Entry("it waits for a volume", "node-1", corev1.PodReasonUnschedulable, "has chosen node node-1, where its volumes are being created "+
			"or pods make room for it; Karpenter plans nothing for it meanwhile, and keeps the node"),
		Entry("its volume was not created in time", "", corev1.PodReasonSchedulerError,
			"failed with it (SchedulerError), so that Karpenter launches nothing for it: timed out"),
	)

	It("should say that Karpenter launches nothing for a resize that does not fit on the node", func() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Spec: corev1.PodSpec{NodeName: "node-1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		f.put(pod)
		state := func() string { return answer[rules.Pod](f, "why", "web-0", "-n", "shop").State }
		Expect(state()).To(Equal("it is bound to node node-1 and running; Karpenter has nothing to do for it"))
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
			Message: "Node didn't have enough resource: cpu"}}
		f.put(pod)
		Expect(state()).To(HavePrefix("it is bound to node node-1 and running, and its resize is Deferred (Node didn't have enough resource: cpu); " +
			"Karpenter launches no node for a resize"))
	})

	It("should answer what needs no NodePool where NodePools cannot be listed", func() {
		f.apply(pools + "---\n" + web)
		f.failLists(&karpv1.NodePoolList{}, &meta.NoKindMatchError{})
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.State).To(HavePrefix("kube-scheduler found no node"))
		Expect([]any{p.Pools, p.Help, p.Outcome}).To(HaveEach(BeEmpty()))
		Expect(f.err).To(ContainSubstring("NodePools were not looked at: the cluster has no nodepools.karpenter.sh"))
	})

	DescribeTable("should name the first obstacle and what would help", func(change func(*corev1.Pod, *karpv1.NodePool), check, help string) {
		f.apply(pools + "---\n" + web)
		readyPool(f)
		pod, pool := get[corev1.Pod](f, "shop", "web-0"), get[karpv1.NodePool](f, "", "default")
		change(pod, pool)
		f.put(pod, pool)
		p := answer[rules.Pod](f, "why", "pod/web-0", "-n", "shop")
		Expect(p.Pools[0].Fits).To(BeFalse())
		failed, _ := lo.Find(p.Pools[0].Checks, func(c rules.Check) bool { return !c.OK })
		Expect(failed.Name).To(Equal(check), "%+v", p.Pools[0].Checks)
		Expect(p.Help).To(ContainElement(ContainSubstring(help)))
		Expect(p.Outcome).To(ContainSubstring("cannot place it"))
	},
		Entry("a label that no NodePool has", func(pod *corev1.Pod, _ *karpv1.NodePool) { pod.Spec.NodeSelector = map[string]string{"team": "red"} },
			"requirement team", "change the pod's requirement team"),
		Entry("a category that the NodePool excludes", func(pod *corev1.Pod, _ *karpv1.NodePool) {
			pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelInstanceCategory: "basic"}
		}, "requirement "+v1alpha1.LabelInstanceCategory, "let NodePool default allow it"),
		Entry("a taint", func(_ *corev1.Pod, pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, "taints", "add a toleration"),
		Entry("a NodePool that is not ready", func(_ *corev1.Pod, pool *karpv1.NodePool) {
			pool.StatusConditions().SetFalse(karpv1.ConditionTypeNodeClassReady, "NotReady", "no image")
		}, "ready", "make NodePool default ready"),
		Entry("a pod that is too large", func(pod *corev1.Pod, _ *karpv1.NodePool) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: lo.Must(parse("4Ti"))}
		}, "size", "request less"),
		Entry("a zone that no flavor is in", func(pod *corev1.Pod, _ *karpv1.NodePool) {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "HN9"}
		}, "zone", "relax its zone"),
	)

	It("should name the zone of the pod's volume as the reason, and which zones there are", func() {
		f.apply(pools + "---\n" + web)
		useVolume(f, "HN9")
		zone := func() rules.Check {
			found, _ := lo.Find(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Pools[0].Checks, func(c rules.Check) bool { return c.Name == "zone" })
			return found
		}
		Expect(zone()).To(Equal(rules.Check{Code: "PodZoneMissing", Name: "zone", Detail: "its volumes let it run in no zone of the NodePool's flavors (HN1, HN2)"}))
		useVolume(f, "HN2")
		Expect(zone()).To(Equal(rules.Check{Code: "PodZoneMissing", Name: "zone", OK: true, Detail: "its volumes let it run in HN2"}))
	})

	It("should say which offerings are unavailable, until when and why", func() {
		f.apply(pools + "---\n" + web)
		f.put(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "OfferingUnavailable",
			InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: "default-x7k2p"},
			Message:        "Insufficient capacity for p2.2c_4g in HN1 (SoldOut): the offering is unavailable", LastTimestamp: metav1.Now(),
		})
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		offerings, _ := lo.Find(p.Pools[0].Checks, func(c rules.Check) bool { return c.Name == "offerings" })
		Expect(offerings.Detail).To(MatchRegexp(`p2\.2c_4g in HN1: marked unavailable after a failed launch: SoldOut, until about \d\d:\d\d:\d\d`))
	})

	DescribeTable("should make an offering unavailable to those alone that the controller's mark concerns:",
		func(failed karpevents.Event, ago time.Duration, expected map[string]bool) {
			f.apply(pools + "---\n" + strings.ReplaceAll(pools, "default", "other") + "---\n" + strings.ReplaceAll(pools, "default", "third") + "---\n" +
				strings.Replace(strings.ReplaceAll(pools, "default", "saving"), "spec: {}", "spec: {billingPlan: SavingPlan}", 1) + "---\n" + web)
			third := get[karpv1.NodePool](f, "", "third")
			third.Spec.Template.Spec.NodeClassRef.Name = "other"
			f.put(third)
			event("e", failed, ago)(f)
			unavailable := func() map[string]bool {
				return lo.SliceToMap(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Pools, func(pool rules.Pool) (string, bool) {
					return pool.Name, strings.Contains(fmt.Sprint(pool.Checks), "p2.2c_4g in HN1: marked unavailable after a failed launch")
				})
			}
			Expect(unavailable()).To(Equal(expected), "by the NodePool in the name of the NodeClaim, which has ended")
			f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: failed.InvolvedObject.(*karpv1.NodeClaim).Name},
				Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Name: "other"}}})
			Expect(unavailable()).To(Equal(expected), "by the NodeClaim itself")
		},
		Entry("the NodeClass of a rejected launch", events.LaunchRejected(claimNamed("other-x7k2p"), "p2.2c_4g", "HN1", "Invalid", errors.New("no")),
			time.Minute, map[string]bool{"default": false, "other": true, "third": true, "saving": false}),
		Entry("the NodeClass of a failed launch", events.LaunchFailed(claimNamed("other-x7k2p"), "node-1", "p2.2c_4g", "HN1", errors.New("no")),
			time.Minute, map[string]bool{"default": false, "other": true, "third": true, "saving": false}),
		Entry("the NodeClass of a node that did not register", events.NodeNotRegistered(claimNamed("other-x7k2p"), "node-1", "p2.2c_4g", "HN1"),
			59*time.Minute, map[string]bool{"default": false, "other": true, "third": true, "saving": false}),
		Entry("no NodeClass an hour later", events.NodeNotRegistered(claimNamed("other-x7k2p"), "node-1", "p2.2c_4g", "HN1"),
			61*time.Minute, map[string]bool{"default": false, "other": false, "third": false, "saving": false}),
		Entry("the billing plan for which there was no capacity",
			events.OfferingUnavailable(claimNamed("other-x7k2p"), "p2.2c_4g", "HN1", "NoHost", errors.New("no")), time.Minute,
			map[string]bool{"default": true, "other": true, "third": true, "saving": false}),
	)

	It("should give no end of a mark that is another's, or of what is closed", func() {
		f.apply(pools + "---\n" + strings.ReplaceAll(pools, "default", "other") + "---\n" + web)
		paused := get[v1alpha1.BizflyNodeClass](f, "", "default")
		paused.StatusConditions().SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, "NodeNotRegistered", "launches with this NodeClass fail")
		f.put(paused)
		event("e", events.LaunchRejected(claimNamed("other-x7k2p"), "p2.2c_4g", "HN1", "Invalid", errors.New("no")), 0)(f)
		checks := lo.SliceToMap(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Pools, func(pool rules.Pool) (string, string) {
			return pool.Name, fmt.Sprint(pool.Checks)
		})
		Expect(checks["default"]).ToNot(ContainSubstring("until about"))
		Expect(checks["other"]).To(ContainSubstring("Invalid, until about"))
	})

	It("should forget what failed before the NodeClass was changed", func() {
		f.apply(pools + "---\n" + web)
		nodeClass := get[v1alpha1.BizflyNodeClass](f, "", "default")
		changed := func(ago time.Duration, subresource string) {
			nodeClass.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
				APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
				Time: lo.ToPtr(metav1.NewTime(time.Now().Add(-ago)))}}
			f.put(nodeClass)
		}
		unavailable := func() bool {
			return strings.Contains(fmt.Sprint(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Pools), "p2.2c_4g in HN1: marked unavailable")
		}
		f.runningNode()
		changePool(f, func(pool *karpv1.NodePool) {
			pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		})
		f.put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "core", Namespace: "default"}, LastTimestamp: metav1.Now(),
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node-1"}, Reason: "Unconsolidatable",
			Message: "Can't replace with a cheaper node"})
		expect := func(marked bool, reason string) {
			GinkgoHelper()
			Expect(unavailable()).To(Equal(marked))
			Expect(answer[rules.Idle](f, "top", "--idle").Nodes[0].Reason).To(Equal(reason))
		}
		event("e", events.NodeNotRegistered(claimNamed("default-x7k2p"), "node-1", "p2.2c_4g", "HN1"), 20*time.Minute)(f)
		changed(36*time.Minute, "")
		expect(true, "CheaperUnavailable")
		changed(34*time.Minute, "") // the server had been launched before the change
		expect(false, "NoCheaperOffering")
		changed(time.Minute, "status") // nothing was changed
		expect(true, "CheaperUnavailable")
	})

	It("should report which nodes of NodePools that the pod could use do not join or failed", func() {
		tainted := strings.Replace(strings.ReplaceAll(pools, "default", "tainted"), "      requirements:",
			"      taints: [{key: gpu, effect: NoSchedule}]\n      requirements:", 1)
		f.apply(pools + "---\n" + tainted + "---\n" + web)
		claim := func(name string, joined bool) *karpv1.NodeClaim {
			c := claimNamed(name)
			c.Labels = map[string]string{karpv1.NodePoolLabelKey: name[:strings.LastIndex(name, "-")]}
			c.CreationTimestamp, c.Spec.NodeClassRef = metav1.NewTime(time.Now().Add(-5*time.Minute)), &karpv1.NodeClassReference{Name: "default"}
			c.Status.ProviderID = providerid.New("server-of-" + name)
			c.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
			c.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeRegistered, "NodeNotFound", "Node not registered with cluster")
			if joined {
				c.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			}
			return c
		}
		f.put(claim("default-late1", false), claim("default-good1", true), claim("tainted-late1", false))
		told := func(e karpevents.Event, ago time.Duration) {
			event("e-"+e.InvolvedObject.(*karpv1.NodeClaim).Name, e, ago)(f)
		}
		told(events.LaunchSlow(claimNamed("default-late1"), "node-1", 5*time.Minute), time.Minute)
		told(events.LaunchSlow(claimNamed("default-good1"), "node-1", 5*time.Minute), time.Minute)
		told(events.LaunchSlow(claimNamed("default-gone1"), "node-1", 5*time.Minute), time.Minute)
		told(events.NodeNotRegistered(claimNamed("default-gone2"), "node-2", "p2.2c_4g", "HN1"), 10*time.Minute)
		told(events.LaunchFailed(claimNamed("default-gone3"), "node-3", "p2.4c_8g", "HN1", errors.New("no valid host")), 9*time.Minute)
		told(events.NodeNotRegistered(claimNamed("default-gone4"), "node-4", "p2.2c_4g", "HN1"), 2*time.Hour)
		told(events.NodeNotRegistered(claimNamed("tainted-gone1"), "node-5", "p2.2c_4g", "HN1"), time.Minute)
		check := func() {
			GinkgoHelper()
			p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
			Expect(lo.Map(p.Events, func(e rules.Entry, _ int) string { return fmt.Sprint(e.Problem, " ", e.From, " ", e.What) })).To(HaveExactElements(
				HavePrefix("true NodeClaim default-gone2 NodeNotRegistered: Server node-2 (p2.2c_4g in HN1) was created, but its node did not register"),
				HavePrefix("true NodeClaim default-gone3 LaunchFailed: BizFly Cloud failed to build server node-3"),
				Equal("false NodeClaim default-late1 the server is launched, and its node has not joined the cluster yet: Node not registered with cluster"),
				HavePrefix("true NodeClaim default-late1 LaunchSlow: Server node-1 is still BUILD"),
			))
			Expect(p.Help).To(ContainElement(HavePrefix("look at server server-of-default-late1 in BizFly Cloud's console")))
		}
		check()
		withoutCredentials()
		check()
	})

	It("should report the newest of many failed nodes, and that there are more", func() {
		f.apply(pools + "---\n" + web)
		for i := range 12 {
			name := fmt.Sprintf("default-gone%d", i)
			event("e-"+name, events.NodeNotRegistered(claimNamed(name), name, "p2.2c_4g", "HN1"), time.Duration(i)*time.Minute)(f)
		}
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Events).To(HaveLen(10))
		Expect(p.Events[9].From).To(Equal("NodeClaim default-gone0"))
		Expect(f.err).To(ContainSubstring("2 earlier lines about NodeClaims are left out"))
	})

	It("should say that no pod adds a node to a static NodePool", func() {
		f.apply(pools + "---\n" + web)
		changePool(f, func(pool *karpv1.NodePool) { pool.Spec.Replicas = lo.ToPtr(int64(3)) })
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Pools[0].Fits).To(BeFalse())
		Expect(p.Pools[0].Checks).To(ContainElement(rules.Check{Code: "PoolStatic", Name: "static",
			Detail: "it is static: Karpenter launches the 3 nodes of its spec.replicas, and none for a pod"}))
		Expect(p.Help).To(ContainElement(HavePrefix("raise spec.replicas of NodePool default")))
		Expect(p.Outcome).To(HavePrefix("Karpenter cannot place it"))
	})

	It("should say that launches with a NodeClass pause, and take another one", func() {
		f.apply(pools + "---\n" + web)
		paused := get[v1alpha1.BizflyNodeClass](f, "", "default")
		paused.StatusConditions().SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, "NodeNotRegistered", "launches with this NodeClass fail")
		f.put(paused)
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Pools).To(HaveExactElements(HaveField("Fits", false)))
		Expect(p.Pools[0].Checks).To(ContainElement(rules.Check{Code: "LaunchesHeldBack", Name: "launches", Detail: "launches with this NodeClass fail"}))
		Expect(p.Outcome).To(HavePrefix("Karpenter cannot place it"))
		Expect(p.Help).To(ContainElement(HavePrefix("remove what holds launches of NodePool default back")))
		f.apply(strings.ReplaceAll(pools, "default", "other"))
		Expect(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Outcome).To(HaveSuffix("(NodePool other)"))
	})

	It("should say that a limit of the cluster holds launches back", func() {
		f.apply(pools + "---\n" + web)
		config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		config.StatusConditions().SetFalse(v1alpha1.ConditionTypeWithinSpendingLimits, "MaxServersReached", "the cluster has 3 servers, and MAX_SERVERS is 3")
		f.put(config)
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Pools[0].Checks).To(ContainElement(rules.Check{Code: "LaunchesHeldBack", Name: "launches",
			Detail: "the ProviderConfig's WithinSpendingLimits is False: the cluster has 3 servers, and MAX_SERVERS is 3"}))
		Expect(p.Outcome).To(And(HavePrefix("Karpenter would launch"), ContainSubstring("but launches are held back"),
			HaveSuffix("WithinSpendingLimits is False: the cluster has 3 servers, and MAX_SERVERS is 3")))
	})

	It("should show the life of a NodeClaim as a timeline, the cloud included", func() {
		server := f.AddServer(cloud.ServerSpec{Name: "node-1"})
		claim := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "default-x", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"},
				CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
				Annotations: map[string]string{v1alpha1.AnnotationLaunchIntent: `{"attempt":1,"name":"node-1",` +
					`"flavor":"p2.2c_4g","zone":"HN1","requestedAt":"2026-11-22T10:00:00Z","taskID":"t1"}`}},
			Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://" + server.ID, NodeName: "node-1"},
		}
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		claim.StatusConditions().SetFalse(karpv1.ConditionTypeRegistered, "NodeNotFound", "Node not registered with cluster")
		f.put(claim, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "ServerLaunched", Message: "Server node-1", Type: "Normal",
			InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: "default-x"}, LastTimestamp: metav1.Now()})
		l := answer[rules.Life](f, "why", "nodeclaim/default-x")
		Expect(l.Now).To(ContainSubstring("its node has not joined the cluster yet"))
		Expect(l.Timeline).To(ContainElements(
			HaveField("What", ContainSubstring("created for NodePool default")),
			HaveField("What", ContainSubstring("create request 1 for a p2.2c_4g in HN1 as node-1 (task t1)")),
			HaveField("What", ContainSubstring("ServerLaunched")), And(HaveField("What", ContainSubstring("is ACTIVE")), HaveField("Time", BeZero()))))
		Expect(f.run("why", "nodeclaim/default-x")).To(Equal(cli.ExitOK))
		Expect(f.out).To(ContainSubstring("BizFly Cloud"))
	})

	DescribeTable("should name the console of a server that does not join, and until when it is there", func(
		change func(*karpv1.NodeClaim), expected OmegaMatcher) {
		class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
		class.StatusConditions().SetTrueWithReason(v1alpha1.ConditionTypeBootstrapReady, "Ready", "risk: --containerd")
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x"},
			Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Name: class.Name}}}
		claim.Status.ProviderID = "bizflycloud://" + f.AddServer(cloud.ServerSpec{Name: "node-1"}).ID
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		claim.StatusConditions().SetUnknown(karpv1.ConditionTypeRegistered)
		change(claim)
		f.put(claim, class)
		Expect(answer[rules.Life](f, "why", "nodeclaim/default-x").Help).To(expected)
		Expect(f.run("why", "nodeclaim/default-x")).To(Equal(cli.ExitOK))
		Expect(strings.Contains(f.out, "What would help:")).To(Equal(claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsUnknown() &&
			claim.Status.ProviderID != ""))
	},
		Entry("while it may still join", func(claim *karpv1.NodeClaim) {
			claim.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 24, 10, 0, 0, 0, time.Local))
		}, HaveExactElements(
			And(ContainSubstring("in BizFly Cloud's console before 10:15:00"), ContainSubstring("printed while it booted")),
			Equal("see what BizflyNodeClass old says of its user data: risk: --containerd"))),
		Entry("but not once it has joined", func(claim *karpv1.NodeClaim) {
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		}, BeEmpty()),
		Entry("nor before there is a server", func(claim *karpv1.NodeClaim) { claim.Status.ProviderID = "" }, BeEmpty()),
	)

	DescribeTable("should say what marks a node for its end, and the reason of top --idle why it is still there:", func(
		change func(*fixture, *karpv1.NodeClaim), marked string, reason string) {
		f.apply(pools)
		f.runningNode()
		holdPod(f)
		claim := get[karpv1.NodeClaim](f, "", "claim-1")
		change(f, claim)
		f.put(claim)
		for _, name := range []string{"nodeclaim/claim-1", "node/node-1"} {
			Expect(answer[rules.Life](f, "why", name).Disruption).To(MatchRegexp("^" + marked + reason + "$"))
		}
		Expect(answer[rules.Idle](f, "top", "--idle").Nodes[0].Detail).To(ContainSubstring("pod shop/runs"))
	},
		Entry("nothing", func(*fixture, *karpv1.NodeClaim) {}, "", "a pod has do-not-disrupt: pod shop/runs"),
		Entry("its age, which no annotation prevents", expired, "it has expired at .* annotation prevents", ""),
		Entry("its age, and it drains", func(f *fixture, claim *karpv1.NodeClaim) {
			expired(f, claim)
			claim.DeletionTimestamp = lo.ToPtr(metav1.Now())
		}, "it has expired at .* annotation prevents; ", "a pod has do-not-disrupt: pod shop/runs"),
		Entry("drift", func(f *fixture, claim *karpv1.NodeClaim) {
			claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "ImageDrift", "the image has changed")
		}, "it has drifted and is to be replaced: the image has changed; ", "a pod has do-not-disrupt: pod shop/runs"),
	)

	It("should not know why a node is still there without its pods", func() {
		f.runningNode()
		f.failLists(&corev1.PodList{}, forbidden)
		Expect(answer[rules.Life](f, "why", "node/node-1").Disruption).To(HavePrefix("not known: you may not list pods"))
	})

	DescribeTable("should say what top says of an initialized node", func(now string, change func(*corev1.Node)) {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x"}, Status: karpv1.NodeClaimStatus{NodeName: "node-1"}}
		for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
			claim.StatusConditions().SetTrue(condition)
		}
		f.put(claim)
		Expect(f.run("why", "nodeclaim/default-x")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("Now: it is initialized, and its node could not be read"))
		Expect(f.err).To(ContainSubstring("the node was not looked at: nodes \"node-1\" not found"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}}}
		change(node)
		f.put(node)
		for _, name := range []string{"node/node-1", "nodeclaim/default-x"} {
			Expect(answer[rules.Life](f, "why", name).Now).To(Equal(now))
		}
	},
		Entry("one that is ready", "it runs", func(*corev1.Node) {}),
		Entry("one that is not", "its node is not ready", func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown }),
		Entry("one that is cordoned", "it is cordoned", func(node *corev1.Node) { node.Spec.Unschedulable = true }),
		Entry("one that drains", "its pods are being evicted", func(node *corev1.Node) {
			node.Finalizers, node.DeletionTimestamp = []string{karpv1.TerminationFinalizer}, lo.ToPtr(metav1.Now())
		}),
		Entry("one that core has chosen", "Karpenter has chosen it for disruption; its pods stay until its replacement is ready", func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: karpv1.DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule}}
		}),
	)

	It("should not say whether Karpenter launched a node while NodeClaims cannot be read", func() {
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1"}})
		f.failLists(&karpv1.NodeClaimList{}, forbidden)
		Expect(f.run("why", "node/pool-1")).To(Equal(cli.ExitFailure), f.out)
		Expect(f.err).To(ContainSubstring("whether Karpenter launched the node is not known: you may not list nodeclaims.karpenter.sh"))
		f.failLists(&karpv1.NodeClaimList{}, &meta.NoKindMatchError{})
		Expect(answer[rules.Life](f, "why", "node/pool-1").Now).To(ContainSubstring("Karpenter did not launch this node"))
	})

	It("should say of a node of a worker pool that Karpenter does not manage it", func() {
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1"}})
		Expect(answer[rules.Life](f, "why", "node/pool-1").Now).To(ContainSubstring("Karpenter did not launch this node"))
	})
})

// holdPod lets the pod of runningNode forbid that it is evicted.
func holdPod(f *fixture) {
	pod := get[corev1.Pod](f, "shop", "runs")
	pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	f.put(pod)
}

// expired lets the NodeClaim be older than it may be.
func expired(_ *fixture, claim *karpv1.NodeClaim) {
	claim.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	claim.Spec.ExpireAfter = karpv1.MustParseNillableDuration("1h")
}

// changePool changes NodePool default, and changePod the pod that waits.
func changePool(f *fixture, change func(*karpv1.NodePool)) {
	GinkgoHelper()
	pool := get[karpv1.NodePool](f, "", "default")
	change(pool)
	f.put(pool)
}

func changePod(f *fixture, change func(*corev1.Pod)) {
	GinkgoHelper()
	pod := get[corev1.Pod](f, "shop", "web-0")
	change(pod)
	f.put(pod)
}

// useVolume lets the pod that waits use a volume in a zone.
func useVolume(f *fixture, zone string) {
	f.put(
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.CSIBlockDriver, VolumeHandle: "1"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop",
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
	)
	changePod(f, func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	})
}

// keptOff lets a pod run on none of Karpenter's nodes, as the controller's.
func keptOff(pod *corev1.Pod) {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}}}}}}}
}

var _ = Describe("why of a pod", func() {
	ask := func(change func(*fixture)) rules.Pod {
		GinkgoHelper()
		f := newFixture()
		f.apply(pools + "---\n" + web)
		change(f)
		return answer[rules.Pod](f, "why", "web-0", "-n", "shop")
	}
	requested := func(name corev1.ResourceName, amount string) func(*fixture) {
		return func(f *fixture) {
			changePod(f, func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount) })
		}
	}
	stored := func(condition, message string) func(*fixture) {
		return func(f *fixture) {
			config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			config.StatusConditions().SetFalse(condition, "Reason", message)
			f.put(config)
		}
	}

	freed := ContainElement(HavePrefix("remove what holds launches of NodePool default back"))

	DescribeTable("should name what is in the way, with what helps where that was tried:", func(change func(*fixture), check, detail string, help OmegaMatcher) {
		p := ask(change)
		Expect(p.Pools[0].Fits).To(BeFalse())
		Expect(p.Pools[0].Checks).To(ContainElement(And(HaveField("Name", check), HaveField("OK", false), HaveField("Detail", ContainSubstring(detail)))))
		Expect(p.Help).To(help)
		Expect(p.Outcome).ToNot(HavePrefix("Karpenter can "))
	},
		Entry("an unpaid account", func(f *fixture) { f.SetQuota(cloud.Quota{Unpaid: true}) }, "launches", "", freed),
		Entry("credentials that are rejected", stored(v1alpha1.ConditionTypeCredentialsReady, "the credentials are wrong"), "launches",
			"the ProviderConfig's CredentialsReady is False: the credentials are wrong", freed),
		Entry("minValues that cannot be met", func(f *fixture) {
			changePool(f, func(pool *karpv1.NodePool) {
				pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
					Key: v1alpha1.LabelInstanceFamily, Operator: corev1.NodeSelectorOpExists, MinValues: lo.ToPtr(15)})
			})
		}, "minValues", "minValues wants 15", ContainElement(HavePrefix("lower minValues in the requirements of NodePool default"))),
		Entry("a disk that is too small", requested(corev1.ResourceEphemeralStorage, "200Gi"), "size", "spec.rootDisk.size of the BizflyNodeClass",
			ContainElement(MatchRegexp(`^raise spec.rootDisk.size of the BizflyNodeClass of NodePool default to (250|260|300)Gi`))),
		Entry("a resource that no flavor has", requested("hugepages-2Mi", "1Gi"), "size", "no flavor has hugepages-2Mi", BeEmpty()),
		Entry("an extended resource that no flavor has", requested("example.com/fpga", "1"), "size", "no flavor has example.com/fpga", BeEmpty()),
		Entry("a requirement that no flavor satisfies", func(f *fixture) {
			f.apply(strings.Replace(pools, "[premium]", "[nothing]", 1))
		}, "flavors", "0 of 64 flavors satisfy the requirements of pod and NodePool: none has karpenter.bizflycloud.vn/instance-category In [nothing]",
			ContainElement(HavePrefix("relax karpenter.bizflycloud.vn/instance-category of the pod or of NodePool default"))),
		Entry("requirements as they are written", func(f *fixture) {
			changePool(f, func(pool *karpv1.NodePool) {
				pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
					Key: v1alpha1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpLt, Values: []string{"1"}})
			})
		}, "flavors", "none has karpenter.bizflycloud.vn/instance-cpu Lt [1]", ContainElement(HavePrefix("relax karpenter.bizflycloud.vn/instance-cpu"))),
		Entry("a NodePool of another provider", func(f *fixture) {
			f.apply(strings.NewReplacer("group: karpenter.bizflycloud.vn, kind: BizflyNodeClass", "group: karpenter.k8s.aws, kind: EC2NodeClass").Replace(pools))
		}, "provider", "it is of another provider (EC2NodeClass of karpenter.k8s.aws): no controller here serves it", BeEmpty()),
		Entry("an annotation that no NodeClaim can have", func(f *fixture) {
			changePool(f, func(pool *karpv1.NodePool) { pool.Spec.Template.Annotations = map[string]string{"my team": "a"} })
		}, "ready", `can be created: spec.template.metadata.annotations: Invalid value: "my team"`, BeEmpty()),
		Entry("nothing that a static NodePool lacks can be launched", func(f *fixture) {
			changePool(f, func(pool *karpv1.NodePool) { pool.Spec.Replicas = lo.ToPtr(int64(3)) })
			staticWaits(0)(f)
		}, "launches", "3 nodes are missing, and nothing that this NodePool allows can be launched", Not(BeNil())),
		Entry("the account, as the controller has stored it", stored(v1alpha1.ConditionTypeAccountAccepted, "the balance is exhausted"), "launches",
			"the ProviderConfig's AccountAccepted is False: the balance is exhausted", freed),
	)

	It("should list no flavors for a NodePool of another provider", func() {
		f := newFixture()
		f.apply(strings.NewReplacer("group: karpenter.bizflycloud.vn, kind: BizflyNodeClass", "group: karpenter.k8s.aws, kind: EC2NodeClass").Replace(pools))
		Expect(f.run("flavors", "--nodepool", "default")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("is of another provider (EC2NodeClass of karpenter.k8s.aws): no controller here serves it"))
	})

	It("should not know whether launches are held back without the ProviderConfig", func() {
		f := newFixture()
		f.apply(pools + "---\n" + web)
		f.failGets(&v1alpha1.ProviderConfig{}, forbidden)
		p := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(p.Pools[0].Checks).To(ContainElement(And(HaveField("Name", "launches"), HaveField("Unknown", true))))
		Expect(p.Pools[0].Fits).To(BeFalse())
		Expect(p.Outcome).To(ContainSubstring("if nothing holds launches back, which is not known: you may not get providerconfigs"))
	})

	It("should mark what the quota does not allow", func() {
		p := ask(event("e", quotaTooSmall, 0))
		Expect(fmt.Sprint(p.Pools[0].Checks)).To(MatchRegexp(`nix\.8c_16g in HN1: .*quota exceeded, until about`))
	})

	It("should only say that a node is chosen while a volume is created there", func() {
		p := ask(func(f *fixture) { changePod(f, func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "node-1" }) })
		Expect(p.State).To(ContainSubstring("has chosen node node-1"))
		Expect([]any{p.Pools, p.Help, p.Outcome}).To(HaveEach(BeEmpty()))
	})

	It("should help with nothing where nothing is needed", func() {
		Expect(ask(func(f *fixture) {
			f.apply(strings.Replace(strings.ReplaceAll(pools, "default", "gpu"), "      requirements:",
				"      taints: [{key: gpu, effect: NoSchedule}]\n      requirements:", 1))
		}).Help).To(BeEmpty())
	})

	It("should name the startup taint that nobody removes, and its node", func() {
		p := ask(func(f *fixture) {
			f.runningNode()
			node, claim := get[corev1.Node](f, "", "node-1"), get[karpv1.NodeClaim](f, "", "claim-1")
			startup := corev1.Taint{Key: "cni.example.com/starting", Effect: corev1.TaintEffectNoSchedule}
			node.Spec.Taints, claim.Spec.StartupTaints = []corev1.Taint{startup}, []corev1.Taint{startup}
			f.put(node, claim)
		})
		Expect(p.Events).To(ContainElement(And(HaveField("From", "node node-1"),
			HaveField("What", ContainSubstring("until someone removes its startup taint cni.example.com/starting:NoSchedule")))))
	})

	It("should say what is left of a NodePool, its week, what fails, and why pods went elsewhere", func() {
		f := newFixture()
		f.apply(pools + "---\n" + strings.Replace(pools[strings.Index(pools, "---\n")+4:], "name: default", "name: other", 1))
		f.runningNode()
		pool := get[karpv1.NodePool](f, "", "other")
		pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Schedule: new("0 0 31 2 *"), Duration: &metav1.Duration{Duration: time.Hour}}}
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		f.put(pool, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "LaunchFailed",
			Message: "no image", LastTimestamp: metav1.Now(),
			InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: "other-x"}})
		n := answer[rules.NodePool](f, "why", "nodepool/other")
		Expect(n.Filters).To(HaveExactElements(HavePrefix("64 flavors"), HavePrefix("29 left after karpenter.bizflycloud.vn/instance-category In [premium]")))
		Expect(n.Impossible).To(ContainElement(ContainSubstring(`schedule "0 0 31 2 *" is always active`)))
		Expect(n.Failures).To(HaveExactElements(And(HavePrefix("1 failure of NodeClaims"), HaveSuffix("LaunchFailed: no image"))))
		Expect(n.Elsewhere).To(HaveExactElements(HavePrefix("pod shop/runs runs on NodePool default: other cannot run it: taints:")))
		Expect(f.run("why", "nodepool/other")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(MatchRegexp(`(?m)^  Drifted: 0 until \w{3} \d\d:\d\d$`))
	})

	It("should explain a pod of a workload, and what a NodePool can launch", func() {
		f := newFixture()
		f.apply(pools + "---\n" + web)
		f.put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
		Expect(answer[rules.Pod](f, "why", "deploy/web", "-n", "shop").Name).To(HavePrefix("shop/web-"))
		Expect(f.err).To(ContainSubstring("6 of the 6 pods of deploy/web are pending"))
		Expect(f.run("why", "nodepool/default")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(HavePrefix("NodePool default: nodes can be launched for it"), ContainSubstring("✓ flavors: 29 of 64")))
		Expect(f.run("why", "secret/x")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("neither a pod, nor deploy/NAME"))
	})

	It("should list the flavors for a pod, with what excludes each", func() {
		f := newFixture()
		f.apply(pools + "---\n" + web)
		changePod(f, func(pod *corev1.Pod) {
			pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelInstanceCategory: "premium"}
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("6")
		})
		Expect(f.run("flavors", "--pod", "web-0", "-n", "shop")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(MatchRegexp(`p2\.2c_4g .*no: the pod requests 6 of cpu, and it leaves`), MatchRegexp(`p2\.8c_16g .* yes`)))
	})
})

var _ = Describe("top", func() {
	It("should show requests against allocatable, the launch price and the total", func() {
		resources := corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("4")), corev1.ResourceMemory: lo.Must(parse("8Gi"))}
		for name, labels := range map[string]map[string]string{
			"a": {karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "p2.4c_8g", v1alpha1.LabelLaunchPrice: "1234"},
			"b": {corev1.LabelInstanceTypeStable: "p2.2c_4g", corev1.LabelTopologyZone: "HN1"},
		} {
			f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: resources}})
		}
		f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("1"))}},
		}}}})
		c := answer[top.Cluster](f, "top")
		Expect(c.Nodes).To(HaveLen(2))
		Expect(c.Nodes[0].CPU).To(BeNumerically("~", 0.25, 0.001))
		Expect(c.Nodes[0].VNDPerHour).To(Equal(1234.0))
		Expect(c.Nodes[1].VNDPerHour).To(BeNumerically(">", 0))
		Expect(c.VNDPerHour).To(BeNumerically("~", c.Nodes[0].VNDPerHour+c.Nodes[1].VNDPerHour, 0.01))
		Expect(f.run("top")).To(Equal(cli.ExitOK))
		Expect(f.out).To(And(ContainSubstring("░"), Not(MatchRegexp(`(?m) +$`))))
	})

	It("should say which part of the total is not known", func() {
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1alpha1.LabelLaunchPrice: "1234"}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{corev1.LabelInstanceTypeStable: "other"}}})
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(HaveSuffix("2 nodes, 0 pods pending: 1,234 VND per hour, 888,480 VND per month without 1 node whose price is not known\n"))
		Expect(f.run("top", "--idle")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(HaveSuffix("888,480 VND per month without 1 node whose price is not known\n"))
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone", Finalizers: []string{"example.com/keep"},
			Labels: map[string]string{v1alpha1.LabelLaunchPrice: "1234", karpv1.NodePoolLabelKey: "default"}}}
		f.put(gone)
		Expect(f.objects.Delete(context.Background(), gone)).To(Succeed())
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(MatchRegexp(`gone .* Deleted .* 0\n`), ContainSubstring("888,480 VND per month without 1 node")))
	})

	It("should say what holds each node, with the totals of top", func() {
		f.install()
		f.apply(pools)
		f.runningNode()
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Labels: map[string]string{v1alpha1.LabelLaunchPrice: "1234"}}})
		holdPod(f)
		i, c := answer[rules.Idle](f, "top", "--idle"), answer[top.Cluster](f, "top")
		Expect(i.VNDPerHour).To(Equal(c.VNDPerHour))
		Expect(lo.SumBy(i.Reasons, func(r rules.IdleReason) float64 { return r.VNDPerHour })).To(BeNumerically("~", c.VNDPerHour, 0.01))
		Expect(i.Nodes).To(HaveExactElements(
			And(HaveField("Name", "node-1"), HaveField("Reason", "DoNotDisruptPod"), HaveField("UnusedVNDPerHour", BeNumerically("<", c.VNDPerHour))),
			And(HaveField("Name", "pool-1"), HaveField("Reason", "NotKarpenters"))))
		Expect(f.run("top", "--idle")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("a pod has do-not-disrupt: pod shop/runs"), ContainSubstring("2 nodes: ")))
		f.failLists(&policyv1.PodDisruptionBudgetList{}, forbidden)
		Expect(answer[rules.Idle](f, "top", "--idle").Nodes[0].Reason).To(Equal("DoNotDisruptPod"))
		f.failLists(&karpv1.NodeClaimList{}, forbidden)
		Expect(answer[rules.Idle](f, "top", "--idle").Nodes).To(HaveEach(HaveField("Detail", ContainSubstring("you may not list nodeclaims"))))
	})

	It("should show a cluster without nodes", func() {
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("0 nodes"))
	})
})

var _ = Describe("support-bundle", func() {
	It("should hold what a bug report needs and no secret", func() {
		const mark = "MARKED-SECRET-0815"
		f.install()
		setEnv("BIZFLY_CLOUD_APP_CRED_SECRET", "")
		f.put(f.controller(corev1.EnvVar{Name: "BIZFLY_CLOUD_APP_CRED_SECRET", Value: mark}, corev1.EnvVar{Name: "SOME_API_KEY", Value: mark + "-key"}))
		f.apply(`
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: BizflyNodeClass
metadata: {name: custom, annotations: {kubectl.kubernetes.io/last-applied-configuration: "` + mark + `"}}
spec: {bootstrapMode: Custom, userData: "#!/bin/sh\n# ` + mark + `", imageSelectorTerms: [{id: 4b8c3d1e-0f2a-4c5b-9d6e-7f8a9b0c1d2e}]}
`)
		f.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: controllerName, Namespace: "karpenter"}, Data: map[string][]byte{"password": []byte(mark)}},
			&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{Kind: "Node"},
				Message: "it said " + mark + ", token: abcdef.0123456789abcdef, password=" + "other-" + mark})
		files := supportBundle()
		Expect(files).To(And(HaveKey("support-bundle/doctor.yaml"), HaveKey("support-bundle/version.yaml"),
			HaveKey("support-bundle/cluster/bizflynodeclasses.karpenter.bizflycloud.vn.yaml"),
			HaveKey("support-bundle/controller/deployment.yaml"), HaveKey("support-bundle/missing.txt")))
		for name, content := range files {
			Expect(content).ToNot(ContainSubstring(mark), name)
			Expect(content).ToNot(ContainSubstring("abcdef.0123456789abcdef"), name)
		}
		Expect(files["support-bundle/cluster/bizflynodeclasses.karpenter.bizflycloud.vn.yaml"]).To(ContainSubstring("sha256"))
	})
})

var _ = Describe("support-bundle of a controller that has restarted", func() {
	It("should hold the end of the log, and that of before the restart", func() {
		f.install()
		clientset := fake.NewClientset()
		f.change = func(s *connect.Session) { s.Kubernetes = clientset }
		f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller-0", Namespace: "karpenter", Labels: f.controller().Labels},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "controller", RestartCount: 1}}}})
		Expect(supportBundle()).To(And(HaveKey("support-bundle/controller/controller-0.log"),
			HaveKey("support-bundle/controller/controller-0.previous.log")))
		options := lo.FilterMap(clientset.Actions(), func(action clienttesting.Action, _ int) (any, bool) {
			generic, ok := action.(clienttesting.GenericAction)
			return lo.TernaryF(ok, func() any { return generic.GetValue() }, func() any { return nil }), ok && action.GetSubresource() == "log"
		})
		Expect(options).To(HaveExactElements(
			And(HaveField("Previous", false), HaveField("TailLines", HaveValue(BeEquivalentTo(10_000)))), HaveField("Previous", true)))
	})
})

const controllerName = "karpenter-provider-bizflycloud"

// supportBundle are the files of one that is written now.
func supportBundle() map[string]string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "bundle.tar.gz")
	Expect(f.run("support-bundle", "--file", path)).To(Equal(cli.ExitOK), f.err)
	file, err := os.Open(path)
	Expect(err).ToNot(HaveOccurred())
	defer func() { _ = file.Close() }()
	reader := tar.NewReader(lo.Must(gzip.NewReader(file)))
	files := map[string]string{}
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).ToNot(HaveOccurred())
		files[header.Name] = string(lo.Must(io.ReadAll(reader)))
	}
}

var _ = Describe("completion and version", func() {
	It("should complete for bash, zsh and fish", func() {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			Expect(f.run("completion", shell)).To(Equal(cli.ExitOK), f.err)
			Expect(f.out).To(ContainSubstring("kubectl-bizfly"), shell)
		}
	})

	It("should report that plugin and controller are of different versions", func() {
		controller := f.controller()
		controller.Labels["app.kubernetes.io/version"] = "9.9.9"
		f.put(controller)
		Expect(f.run("version")).To(Equal(cli.ExitOK))
		Expect(f.err).To(ContainSubstring("the controller 9.9.9"))
		Expect(answer[rules.Report](f, "doctor").Findings).To(ContainElement(HaveField("Code", "VersionSkew")))
	})
})
