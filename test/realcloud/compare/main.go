// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command compare prints where the responses of the sandbox differ from those of the real cloud.
package main

import (
	"fmt"
	"os"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/realcloud/answers"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compare <answers of the real cloud> <answers of the sandbox>")
		os.Exit(2)
	}
	differences, err := compare(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	for _, difference := range differences {
		fmt.Println(difference)
	}
	fmt.Printf("%d differences\n", len(differences))
	if len(differences) > 0 {
		os.Exit(1)
	}
}

func compare(actual, sandbox string) ([]answers.Difference, error) {
	a, err := answers.Read(actual)
	if err != nil {
		return nil, err
	}
	b, err := answers.Read(sandbox)
	if err != nil {
		return nil, err
	}
	return answers.Compare(a, b), nil
}
