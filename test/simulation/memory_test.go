// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/patrickmn/go-cache"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// sizes are how many entries maps, slices and caches have, by the type and field that holds them.
type sizes map[string]int

// sizesOf measures everything that can be reached from the roots through objects of this module, maps of sync and caches of go-cache. What
// objects of other modules and functions hold is not seen.
func sizesOf(roots ...any) sizes {
	r := ruler{found: sizes{}, seen: map[any]bool{}}
	for _, root := range roots {
		r.measure("", reflect.ValueOf(root))
	}
	return r.found
}

type ruler struct {
	found sizes
	// seen are the pointers and maps that were measured, each with its type: the first field of a struct has the address of the struct.
	seen map[any]bool
}

// once reports whether it is asked for the first time.
func (r ruler) once(v reflect.Value) bool {
	key := [2]any{v.Type(), v.Pointer()}
	defer func() { r.seen[key] = true }()
	return !r.seen[key]
}

func (r ruler) measure(place string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			r.measure(place, v.Elem())
		}
	case reflect.Pointer:
		if !v.IsNil() && r.once(v) {
			r.measure(place, v.Elem())
		}
	case reflect.Struct:
		r.measureStruct(place, v)
	case reflect.Map:
		if !v.IsNil() && r.once(v) {
			r.found[place] += v.Len()
			for entries := v.MapRange(); entries.Next(); {
				r.measure(place, entries.Value())
			}
		}
	case reflect.Slice:
		r.found[place] += v.Len()
		if kind := v.Type().Elem().Kind(); kind < reflect.Array || kind == reflect.String {
			return // numbers and texts hold nothing
		}
		for i := range v.Len() {
			r.measure(place, v.Index(i))
		}
	}
}

func (r ruler) measureStruct(place string, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[sync.Map]():
		if v.CanAddr() {
			entries := 0
			(*sync.Map)(addressOf(v)).Range(func(_, value any) bool {
				entries++
				r.measure(place, reflect.ValueOf(value))
				return true
			})
			r.found[place] += entries
		}
	case v.Type().PkgPath() == "sync/atomic" && strings.HasPrefix(v.Type().Name(), "Pointer["):
		if v.CanAddr() {
			r.measure(place, reflect.NewAt(v.Type(), addressOf(v)).MethodByName("Load").Call(nil)[0])
		}
	case open(v.Type()):
		for i := range v.NumField() {
			r.measure(v.Type().String()+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

// addressOf is the address of a struct that may be in a field of another package. It is only read, while nothing else runs.
func addressOf(v reflect.Value) unsafe.Pointer {
	return unsafe.Pointer(v.UnsafeAddr())
}

// open reports whether the fields of a type are looked into.
func open(t reflect.Type) bool {
	const module = "github.com/bizflycloud/karpenter-provider-bizflycloud/"
	return strings.HasPrefix(t.PkgPath(), module+"internal/") || strings.HasPrefix(t.PkgPath(), module+"pkg/") ||
		t.PkgPath() == "github.com/patrickmn/go-cache" || t.Name() == ""
}

var _ = Describe("A measure of what is held", func() {
	It("should count the entries of each map, slice and cache once", func() {
		type node struct{ names []string }
		shared := &struct {
			nodes map[string]*struct{ names []string }
		}{map[string]*struct{ names []string }{"a": {[]string{"x", "y"}}, "b": nil}}
		held := &struct {
			one, two any
			known    sync.Map
			last     atomic.Pointer[[]int]
			cached   *cache.Cache
			foreign  node
		}{one: shared, two: shared, cached: cache.New(time.Hour, 0), foreign: node{[]string{"not ours"}}}
		held.known.Store(1, []int{1, 2, 3})
		held.last.Store(&[]int{1, 2, 3, 4, 5})
		held.cached.SetDefault("key", map[string]int{"a": 1})
		byLast := map[string]int{}
		for place, entries := range sizesOf(held) {
			byLast[place[strings.LastIndex(place, ".")+1:]] += entries
		}
		Expect(byLast).To(Equal(map[string]int{"nodes": 2, "names": 2, "known": 1 + 3, "last": 5, "items": 1, "Object": 1}))
	})
})
