/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// The compare command prints where the responses of the sandbox differ from those of the real cloud.
package main

import (
	"fmt"
	"os"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/cloud/answers"
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
