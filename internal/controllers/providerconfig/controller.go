// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providerconfig keeps the configuration of the cloud active and reports its state. It reads it
// every few seconds, on every replica: a rotated Secret is noticed without a watch, which would need the right to list
// every Secret of the namespace. Only the leader writes.
package providerconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	bizflyevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of conditions.
const (
	// ReasonSecretForbidden says that the Secret named is not the one that the Role grants.
	ReasonSecretForbidden = "SecretForbidden"
	// ReasonCredentialsInvalid says that the credentials are missing or rejected.
	ReasonCredentialsInvalid = "CredentialsInvalid"
	// ReasonEndpointUnreachable says that the cloud does not answer.
	ReasonEndpointUnreachable = "EndpointUnreachable"
	// ReasonScopeChanged says that servers of another scope exist.
	ReasonScopeChanged = "ScopeChanged"
	// ReasonNotAsked says that the cloud could not be asked yet.
	ReasonNotAsked = "NotAsked"
	// ReasonAccountUnpaid says that the account itself says so.
	ReasonAccountUnpaid = "AccountUnpaid"
	// ReasonConfigMapUnusable says that the ConfigMap named does not exist, is not the one that the Role grants, or
	// could not be read.
	ReasonConfigMapUnusable = "ConfigMapUnusable"
	// ReasonKeysIgnored is that of a tuning of which some keys are invalid, which the message names.
	ReasonKeysIgnored = "KeysIgnored"
)

// Controller keeps the configuration active.
type Controller struct {
	create     bool
	clock      clock.Clock
	kubeClient client.Client
	recorder   events.Recorder
	config     *config.DefaultProvider
	tuning     *tuning.DefaultProvider
	catalog    catalog.Provider
	elected    <-chan struct{}
	launches   Launches
	unpaid     func(ctx context.Context) (string, error)
	forms      *instance.Forms
	// scope is that of the catalog, and refresh when a failed refresh of another one's is tried again.
	scope   *bizfly.Scope
	refresh time.Time
	// joiningSince is since when an API server runs beside those that are recorded; zero while none does.
	joiningSince time.Time
}

// Launches says what holds all launches back; an empty reason is nothing.
type Launches interface {
	// LimitReached is a limit of the cluster.
	LimitReached() (reason, description string)
	// AccountRejected is BizFly Cloud's rejection of the account.
	AccountRejected() (reason, description string)
}

// NewController returns the controller; it writes once elected is closed, and creates the ProviderConfig where there is
// none if create says so. unpaid is that of the account.
func NewController(clk clock.Clock, kubeClient client.Client, recorder events.Recorder,
	configProvider *config.DefaultProvider, tuningProvider *tuning.DefaultProvider, catalogProvider catalog.Provider,
	launches Launches, unpaid func(ctx context.Context) (string, error), forms *instance.Forms, create bool,
	elected <-chan struct{}) *Controller {
	return &Controller{create: create, clock: clk, kubeClient: kubeClient, recorder: recorder, config: configProvider,
		tuning: tuningProvider, catalog: catalogProvider, launches: launches, unpaid: unpaid, forms: forms, elected: elected}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "providerconfig" }

// Reconcile looks once.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	result := c.config.Sync(ctx)
	if result.ReadErr != nil {
		return reconciler.Result{}, result.ReadErr
	}
	var tuned *tuning.Result
	if result.Object != nil {
		tuned = c.tuning.Sync(ctx, result.Object)
		// On every replica: the next leader launches before it could learn them anew.
		c.forms.Restore(result.Object.Status.RequestForms)
	}
	select {
	case <-c.elected:
	default:
		c.readAnew(ctx, result)
		// The next leader pins the scope before anything can be launched, so it must not wait long.
		closed := result.Object == nil || result.Object.RecordedScope() == nil
		interval := lo.Ternary(closed, ttl.ProviderConfigClosedInterval, ttl.ProviderConfigInterval)
		return reconciler.Result{RequeueAfter: interval}, nil
	}
	if result.Object == nil && !c.create {
		log.FromContext(ctx).Info("waiting for the ProviderConfig, in which the scope is written down",
			"ProviderConfig", v1alpha1.ProviderConfigName, "CREATE_PROVIDER_CONFIG", false)
		return reconciler.Result{RequeueAfter: ttl.ProviderConfigInterval}, nil
	}
	if result.Object == nil {
		// The scope has to be written down somewhere before the first server is launched.
		object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		if err := c.kubeClient.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return reconciler.Result{}, fmt.Errorf("creating ProviderConfig %s: %w", object.Name, err)
		}
		return reconciler.Result{RequeueAfter: time.Millisecond}, nil
	}
	pinnedNow, err := c.report(ctx, result, tuned)
	if err != nil {
		return reconciler.Result{}, err
	}
	again := pinnedNow || c.readAnew(ctx, result)
	return reconciler.Result{RequeueAfter: lo.Ternary(again, time.Millisecond, ttl.ProviderConfigInterval)}, nil
}

// readAnew reads the catalog of another region or project, and reports whether it has: zones and flavors of the one
// before would be launched in vain. What is called in the new scope does not wait for it, since the scope is confirmed
// before.
func (c *Controller) readAnew(ctx context.Context, result *config.Result) bool {
	if c.scope == nil && result.Object != nil {
		// The catalog of a start is that of the recorded scope, also where another one is configured.
		c.scope = (*bizfly.Scope)(result.Object.RecordedScope())
	}
	if result.Scope == nil || result.ScopeErr != nil {
		return false
	}
	if c.scope == nil || *c.scope == *result.Scope {
		c.scope = result.Scope
		return false
	}
	if c.clock.Now().Before(c.refresh) {
		return false
	}
	if err := c.catalog.Refresh(ctx); err != nil {
		log.FromContext(ctx).Error(err, "reading the catalog of another scope", "region", result.Scope.Region)
		c.refresh = c.clock.Now().Add(ttl.CatalogBackoff)
		return false
	}
	c.scope = result.Scope
	return true
}

// report writes the status, and reports whether it pinned a scope, so that the next reconciliation opens the adapter
// for it.
func (c *Controller) report(ctx context.Context, result *config.Result, tuned *tuning.Result) (bool, error) {
	stored := result.Object
	object := stored.DeepCopy()
	c.setConditions(object, result)
	c.tuningCondition(object, tuned)
	pinnedNow := false
	if result.Scope != nil && result.ScopeErr == nil {
		scope := v1alpha1.ScopeStatus(*result.Scope)
		pinnedNow = lo.FromPtr(object.RecordedScope()) != scope
		object.RecordScope(scope)
	}
	if changed, ok := errors.AsType[*config.ScopeChangedError](result.ScopeErr); ok && object.RecordedScope() == nil {
		// A ProviderConfig that was made anew has forgotten the scope, which must outlive this process.
		object.RecordScope(v1alpha1.ScopeStatus(changed.Pinned))
	}
	c.checkControlPlane(ctx, object, object.StatusConditions())
	c.checkLaunches(ctx, object.StatusConditions(), result.Scope != nil)
	// In seconds, as the status has it. The configuration may have become active before this replica led, or before this
	// object existed.
	since := metav1.NewTime(result.Since.Truncate(time.Second))
	if result.Scope != nil && lo.FromPtr(object.Status.LastLoginTime).Time.Before(since.Time) {
		object.Status.LastLoginTime = &since
	}
	if snapshot, err := c.catalog.Snapshot(); err == nil {
		object.Status.Zones = lo.Map(snapshot.Zones(), func(z catalog.Zone, _ int) string { return z.Name })
	}
	object.Status.RequestForms = c.forms.Accepted()
	object.Status.Reason = reasonOf(object)
	if !maps.Equal(stored.Annotations, object.Annotations) {
		// Before the status: what must survive a restore comes first.
		recorded := stored.DeepCopy()
		recorded.Annotations = object.Annotations
		err := c.kubeClient.Patch(ctx, recorded, controllers.Locked(stored))
		if apierrors.IsConflict(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("recording scope and API servers in ProviderConfig %s: %w", object.Name, err)
		}
		stored, object.ResourceVersion = recorded, recorded.ResourceVersion
	}
	if equality.Semantic.DeepEqual(stored.Status, object.Status) {
		return pinnedNow, nil
	}
	if err := c.kubeClient.Status().Patch(ctx, object, controllers.Locked(stored)); err != nil {
		if apierrors.IsConflict(err) {
			return true, nil
		}
		return false, fmt.Errorf("writing the status of ProviderConfig %s: %w", object.Name, err)
	}
	return pinnedNow, nil
}

// reasonOf is why the ProviderConfig is not ready, empty while it is.
func reasonOf(object *v1alpha1.ProviderConfig) string {
	conditions := object.StatusConditions()
	for _, conditionType := range []string{v1alpha1.ConditionTypeCredentialsReady, v1alpha1.ConditionTypeEndpointReachable,
		v1alpha1.ConditionTypeScopePinned, v1alpha1.ConditionTypeTuningReady} {
		if found := conditions.Get(conditionType); !found.IsTrue() {
			return found.Reason
		}
	}
	return ""
}

// setConditions sets the conditions that the configuration leads to.
func (c *Controller) setConditions(object *v1alpha1.ProviderConfig, result *config.Result) {
	conditions := object.StatusConditions()
	// The column of kubectl get is the first reason: without a question to the cloud that of the scope, where it is why
	// there was none.
	notAsked, why := ReasonNotAsked, "The cloud could not be asked yet"
	if result.ScopeErr != nil {
		notAsked, why = ReasonScopeChanged, "The cloud is not asked about another scope"
	}
	switch {
	case result.CredentialsErr != nil:
		_, forbidden := errors.AsType[*config.ForbiddenError](result.CredentialsErr)
		conditions.SetFalse(v1alpha1.ConditionTypeCredentialsReady,
			lo.Ternary(forbidden, ReasonSecretForbidden, ReasonCredentialsInvalid), result.CredentialsErr.Error())
	case result.Scope != nil:
		conditions.SetTrue(v1alpha1.ConditionTypeCredentialsReady)
	default:
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeCredentialsReady, notAsked, why)
	}
	switch {
	case result.EndpointErr != nil:
		conditions.SetFalse(v1alpha1.ConditionTypeEndpointReachable, ReasonEndpointUnreachable, result.EndpointErr.Error())
	case result.Scope != nil || bizfly.IsAuth(result.CredentialsErr) || bizfly.IsPermission(result.CredentialsErr):
		conditions.SetTrue(v1alpha1.ConditionTypeEndpointReachable)
	default:
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeEndpointReachable, notAsked, why)
	}
	switch {
	case result.ScopeErr != nil:
		conditions.SetFalse(v1alpha1.ConditionTypeScopePinned, ReasonScopeChanged, result.ScopeErr.Error())
	case result.Scope != nil || object.RecordedScope() != nil:
		conditions.SetTrue(v1alpha1.ConditionTypeScopePinned)
	default:
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeScopePinned, ReasonNotAsked,
			"No login has shown yet which project the credentials are for")
	}
}

// checkLaunches reports what holds all launches back: a limit of the cluster, an account that is unpaid, or a rejection
// of the account. The events are on the NodeClaims that end. What the account has said stays while it cannot be asked.
func (c *Controller) checkLaunches(ctx context.Context, conditions status.ConditionSet, loggedIn bool) {
	set := func(condition, reason, description string) {
		if reason == "" {
			conditions.SetTrue(condition)
			return
		}
		conditions.SetFalse(condition, reason, description)
	}
	reason, description := c.launches.LimitReached()
	set(v1alpha1.ConditionTypeWithinSpendingLimits, reason, description)
	reason, description = c.launches.AccountRejected()
	said := lo.FromPtr(conditions.Get(v1alpha1.ConditionTypeAccountAccepted))
	unpaid := lo.Ternary(said.Reason == ReasonAccountUnpaid, said.Message, "")
	if loggedIn { // or its error would be the answer for minutes
		if answer, err := c.unpaid(ctx); err == nil {
			unpaid = answer
		}
	}
	if unpaid != "" {
		reason, description = ReasonAccountUnpaid, unpaid
	}
	set(v1alpha1.ConditionTypeAccountAccepted, reason, description)
}

// Register adds the controller to the manager; it runs before the lease is won.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		WithOptions(controller.Options{NeedLeaderElection: lo.ToPtr(false), RateLimiter: retries}).
		Complete(singleton.AsReconciler(c))
}

// retries repeats a look that failed as soon as any other: the back-off of controller-runtime grows to 17 minutes, for
// which a status that cannot be written would keep new credentials from being applied.
var retries = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
	ttl.ProviderConfigInterval, ttl.ProviderConfigInterval)

// tuningCondition reports what came of the tuning, and records what is active. Invalid keys leave the condition true:
// the others are active, and these keep their last valid values.
func (c *Controller) tuningCondition(object *v1alpha1.ProviderConfig, result *tuning.Result) {
	conditions := object.StatusConditions()
	object.Status.Tuning = result.Active
	for _, problem := range result.Problems { // the message of the condition may lack some
		c.recorder.Publish(bizflyevents.TuningIgnored(object, result.ConfigMap, problem))
	}
	switch {
	case result.Err != nil:
		conditions.SetFalse(v1alpha1.ConditionTypeTuningReady, ReasonConfigMapUnusable, result.Err.Error())
	case len(result.Problems) > 0:
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeTuningReady, ReasonKeysIgnored,
			strings.Join(lookup.Shorten(result.Problems), ". "))
	default:
		conditions.SetTrue(v1alpha1.ConditionTypeTuningReady)
	}
}
