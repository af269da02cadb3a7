// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sample is what the suite of mutate tries its mutants on.
package sample

import (
	"errors"
	"slices"
)

func all(texts ...string) []string { return texts }

var fruit = all("apple", "pear")

// Fruit reports whether the name is that of a fruit.
func Fruit(name string) bool { return slices.Contains(fruit, name) }

// Box holds apples.
type Box struct {
	Apples int
	Full   bool
}

// New returns a box of at least 1 and less than 10 apples.
func New(apples int) (*Box, error) {
	if apples < 1 || apples >= 10 {
		return nil, errors.New("no such box")
	}
	box := &Box{Apples: apples}
	box.Full = apples == 9
	return box, nil
}

// Untested has no spec.
func Untested(box *Box) { box.Apples++ }
