// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// traceFile is pods of the Alibaba GPU trace of 2023: data/README.md.
//
//go:embed data/trace.csv
var traceFile []byte

const (
	// smaller is by what requests are divided: the nodes of the trace have 64 to 128 CPUs, ours 2 to 16.
	smaller = 8
	// largest are the requests that a worker with 8 vCPUs and 16 GiB still holds, so that pools of it can be compared.
	largestMilliCPU, largestMiB = 7_500, 12 << 10
	// shortest is the least that a pod lives: longer than a server takes to boot.
	shortest = 10 * time.Minute
)

// traced is a pod of the trace: requests, and creation and deletion in seconds since its start.
type traced struct{ milliCPU, mib, created, deleted int64 }

// trace returns the pods of the trace in their order of creation, with smaller requests. Their GPUs are left out.
func trace() []traced {
	rows, err := csv.NewReader(bytes.NewReader(traceFile)).ReadAll()
	if err != nil {
		panic(err)
	}
	var pods []traced
	for _, row := range rows[1:] {
		var numbers [4]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(row[i], 10, 64); err != nil {
				panic(err)
			}
		}
		pod := traced{numbers[0] / smaller, numbers[1] / smaller, numbers[2], numbers[3]}
		if pod.milliCPU <= largestMilliCPU && pod.mib <= largestMiB {
			pods = append(pods, pod)
		}
	}
	slices.SortStableFunc(pods, func(a, b traced) int { return int(a.created - b.created) })
	return pods
}

// traceSample is so many pods of the trace, evenly out of all of them.
func traceSample(count int, seed uint64) []Pod {
	all := trace()
	step := len(all) / count
	first := random(seed).IntN(step)
	var pods []Pod
	for n := range count {
		from := all[first+n*step]
		name := fmt.Sprintf("job-%d", n)
		pods = append(pods, Pod{Name: name, App: name, MilliCPU: from.milliCPU, MiB: from.mib, Arrives: time.Duration(from.created) * time.Second,
			Leaves: time.Duration(from.deleted) * time.Second})
	}
	return pods
}

func atOnce(pods []Pod) []Pod {
	for i := range pods {
		pods[i].Arrives, pods[i].Leaves = 0, 0
	}
	return pods
}

// dayOfTrace is so many pods of the busy part of the trace, which begins with the hundredth pod. Arrivals are scaled to a day. There are
// fewer pods than in the trace, so lifetimes are scaled by as much less as there are fewer: as many pods run at a time as in the trace,
// or more, because none lives for less than ten minutes.
func dayOfTrace(count int, seed uint64) []Pod {
	all := trace()[100:]
	begin, end := all[0].created, all[len(all)-1].created
	faster := float64(end-begin) / (Day - time.Hour).Seconds()
	step := len(all) / count
	first := random(seed).IntN(step)
	var pods []Pod
	for n := range count {
		from := all[first+n*step]
		life := max(shortest, time.Duration(float64(from.deleted-from.created)/faster*float64(step)*float64(time.Second)))
		pod := Pod{Name: fmt.Sprintf("job-%d", n), MilliCPU: from.milliCPU, MiB: from.mib,
			Arrives: time.Duration(float64(from.created-begin) / faster * float64(time.Second))}
		pod.App = pod.Name
		if pod.Leaves = pod.Arrives + life; pod.Leaves >= Day {
			pod.Leaves = 0
		}
		pods = append(pods, pod)
	}
	return inOrder(pods)
}
