// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"reflect"
	"slices"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects are what a client starts with.
type Objects []client.Object

// With returns the objects with others, which take the place of those of the same kind, namespace and name.
func (o Objects) With(others ...client.Object) Objects {
	type id struct {
		kind reflect.Type
		key  client.ObjectKey
	}
	idOf := func(object client.Object) id { return id{reflect.TypeOf(object), client.ObjectKeyFromObject(object)} }
	result, at := slices.Clone(o), map[id]int{}
	for i, object := range o {
		at[idOf(object)] = i
	}
	for _, object := range others {
		if i, ok := at[idOf(object)]; ok {
			result[i] = object
			continue
		}
		at[idOf(object)] = len(result)
		result = append(result, object)
	}
	return result
}

// Of returns the objects of a kind.
func Of[T client.Object](objects Objects) []T {
	return lo.FilterMap(objects, func(object client.Object, _ int) (T, bool) {
		typed, ok := object.(T)
		return typed, ok
	})
}
