// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bill is the workloads whose bill `make bench WHAT=bill` measures: what pods request, and from when until when they are wanted.
package bill

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Day is how long a workload that changes lasts.
const Day = 24 * time.Hour

// Pod is one pod of a workload. It is wanted from Arrives until Leaves, both since the start; where Leaves is 0, it stays.
type Pod struct {
	Name string
	// App is the Deployment or Job that it belongs to.
	App      string
	MilliCPU int64
	MiB      int64
	Arrives  time.Duration
	Leaves   time.Duration
}

// Workload is pods under a name.
type Workload struct {
	// Name is its key in the results, Title what a page calls it.
	Name, Title string
	Pods        []Pod
}

// Settling returns the workloads whose pods all arrive at once and stay.
func Settling() []Workload {
	var workloads []Workload
	for _, seed := range []uint64{12, 30, 60, 100, 200} {
		count := int(seed) //nolint:gosec // one of these
		workloads = append(workloads, Workload{
			Name: fmt.Sprintf("mix-%d", count), Title: fmt.Sprintf("%d pods of small services", count), Pods: mix(seed, count),
		})
	}
	for _, a := range applications() {
		workloads = append(workloads, Workload{Name: a.name, Title: fmt.Sprintf("%s, %d installations", a.title, installations), Pods: installed(a)})
	}
	return append(workloads, Workload{Name: "trace-60", Title: "60 pods of the trace", Pods: atOnce(traceSample(60, 1))})
}

// Days returns the workloads whose pods come and go within a day.
func Days() []Workload {
	return []Workload{
		{Name: "services-day", Title: "small services that follow the hour", Pods: servicesOfDay(1)},
		{Name: "boutique-day", Title: "Online Boutique that follows the hour", Pods: applicationOfDay(applications()[0])},
		{Name: "trace-day", Title: "a day of the trace", Pods: dayOfTrace(150, 1)},
	}
}

// sizes are the requests of a pod of a small service, in thousandths of a CPU and MiB.
var sizes = struct{ milliCPU, mib []int64 }{
	milliCPU: []int64{50, 100, 100, 100, 200, 250, 250, 500, 500, 1000},
	mib:      []int64{64, 128, 128, 256, 256, 512, 512, 1024, 1024, 2048},
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 31)) } //nolint:gosec // a seed makes the same workload each time

// service is a Deployment of a random size.
func service(r *rand.Rand, name string) Pod {
	return Pod{App: name, MilliCPU: sizes.milliCPU[r.IntN(len(sizes.milliCPU))], MiB: sizes.mib[r.IntN(len(sizes.mib))]}
}

// mix is so many pods of services with one to five replicas.
func mix(seed uint64, count int) []Pod {
	r, pods := random(seed), []Pod{}
	for n := 0; len(pods) < count; n++ {
		pod := service(r, fmt.Sprintf("service-%d", n))
		for replica := range min(1+r.IntN(5), count-len(pods)) {
			pod.Name = fmt.Sprintf("%s-%d", pod.App, replica)
			pods = append(pods, pod)
		}
	}
	return pods
}

// busy is how much of its busiest hour a service has to do at a time of the day: a tenth at 4 in the morning, all of it at 16.
func busy(at time.Duration) float64 {
	return 0.55 - 0.45*math.Cos(2*math.Pi*(at.Hours()-4)/24)
}

// scaling is how often replicas follow the load.
const scaling = 30 * time.Minute

// scaled is what a HorizontalPodAutoscaler makes of a service: the last replica that came goes first.
func scaled(r *rand.Rand, pod Pod, most int) []Pod {
	var pods, live []Pod
	// Services do not change at the same moment.
	offset := time.Duration(r.Int64N(int64(scaling)))
	for at := time.Duration(0); at < Day; at += scaling {
		now := at + offset
		if at == 0 {
			now = 0
		}
		// A tenth of noise is what a day has besides its hours.
		wanted := max(1, int(math.Round(float64(most)*busy(at)*(0.9+0.2*r.Float64()))))
		for len(live) < wanted {
			pod.Arrives, pod.Name = now, fmt.Sprintf("%s-%d", pod.App, len(pods)+len(live))
			live = append(live, pod)
		}
		for len(live) > wanted {
			last := live[len(live)-1]
			last.Leaves, live = now, live[:len(live)-1]
			pods = append(pods, last)
		}
	}
	pods = append(pods, live...)
	for i := range pods {
		pods[i].Name = fmt.Sprintf("%s-%d", pod.App, i)
	}
	return pods
}

// servicesOfDay is 20 services of up to eight replicas.
func servicesOfDay(seed uint64) []Pod {
	r, pods := random(seed), []Pod{}
	for n := range 20 {
		pods = append(pods, scaled(r, service(r, fmt.Sprintf("service-%d", n)), 1+r.IntN(8))...)
	}
	return inOrder(pods)
}

func inOrder(pods []Pod) []Pod {
	slices.SortStableFunc(pods, func(a, b Pod) int { return int(a.Arrives - b.Arrives) })
	return pods
}
