// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers has what the controllers of this provider share.
package controllers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// state is what all controllers of NodeClaims read of them.
type state struct {
	providerID           string
	registered, deleting bool
}

func stateOf(claim *karpv1.NodeClaim) state {
	return state{claim.Status.ProviderID, IsTrue(claim, karpv1.ConditionTypeRegistered), !claim.DeletionTimestamp.IsZero()}
}

// Managed passes the events of this provider's NodeClaims, but only those updates that change the state or what
// relevant returns as a comparable value: about a dozen updates of each NodeClaim concern other controllers, and would
// cost a reconcile each.
func Managed[T comparable](relevant func(*karpv1.NodeClaim) T) predicate.Predicate {
	managed := func(o client.Object) bool { return cloudprovider.IsManaged(o.(*karpv1.NodeClaim)) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return managed(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*karpv1.NodeClaim), e.ObjectNew.(*karpv1.NodeClaim)
			return managed(after) && (stateOf(before) != stateOf(after) || relevant(before) != relevant(after))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// IsTrue reports whether a condition of the NodeClaim is true. It reads the list itself: the set of conditions would
// fill in what is missing, in an object that belongs to the cache.
func IsTrue(claim *karpv1.NodeClaim, condition string) bool {
	i := slices.IndexFunc(claim.Status.Conditions, func(c status.Condition) bool { return c.Type == condition })
	return i >= 0 && claim.Status.Conditions[i].IsTrue()
}

// Locked is a merge patch that fails when the object has changed since it was read.
func Locked(stored client.Object) client.Patch {
	return client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
}

// AfterLocked is the result of a locked patch: after a conflict it is tried again, and an object that is gone needs
// none.
func AfterLocked(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ttl.Conflict}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// Guard returns a patch that adds values, by their JSON pointers, while others are as they were read. What else has
// changed since does not matter to it, as it does to a locked patch: a NodeClaim and its Node change several times a
// second during a launch.
func Guard(tests, adds map[string]any) client.Patch {
	var operations []jsonpatch.Operation
	for _, pointer := range slices.Sorted(maps.Keys(tests)) {
		operations = append(operations, jsonpatch.NewOperation("test", pointer, tests[pointer]))
	}
	for _, pointer := range slices.Sorted(maps.Keys(adds)) {
		operations = append(operations, jsonpatch.NewOperation("add", pointer, adds[pointer]))
	}
	data, _ := json.Marshal(operations) // what Kubernetes' own types consist of always marshals
	return client.RawPatch(types.JSONPatchType, data)
}

// Pointer is the JSON pointer of a field.
func Pointer(path ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	return strings.Join(lo.Map(path, func(part string, _ int) string { return "/" + escape.Replace(part) }), "")
}

// AfterGuarded is the result of a guarded patch: after a failed test it is tried again, so much later, and an object
// that is gone needs none.
func AfterGuarded(err error, again time.Duration) (reconcile.Result, error) {
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return AfterLocked(err)
}
