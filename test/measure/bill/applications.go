// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill

import "fmt"

// installations is how often an application is installed at once, as for five teams: once, each fits one small node.
const installations = 5

// application is the Deployments of a well-known application with what their published manifests request.
type application struct {
	name, title string
	deployments []deployment
}

type deployment struct {
	name          string
	milliCPU, mib int64
	// grows is true where replicas follow the load.
	grows bool
}

// applications are the requests of their public manifests, in November 2026.
func applications() []application {
	return []application{
		// release/kubernetes-manifests.yaml of github.com/GoogleCloudPlatform/microservices-demo.
		{"boutique", "Online Boutique", []deployment{
			{"adservice", 200, 180, true}, {"cartservice", 200, 64, true}, {"checkoutservice", 100, 64, true}, {"currencyservice", 100, 64, true},
			{"emailservice", 100, 64, true}, {"frontend", 100, 64, true}, {"loadgenerator", 300, 256, false}, {"paymentservice", 100, 64, true},
			{"productcatalogservice", 100, 64, true}, {"recommendationservice", 100, 220, true}, {"redis-cart", 70, 200, false},
			{"shippingservice", 100, 64, true},
		}},
		// deploy/kubernetes/complete-demo.yaml of github.com/microservices-demo/microservices-demo. Its databases and its queue request nothing.
		{"sockshop", "Sock Shop", []deployment{
			{"carts", 100, 200, true}, {"carts-db", 0, 0, false}, {"catalogue", 100, 100, true}, {"catalogue-db", 0, 0, false},
			{"front-end", 100, 300, true}, {"orders", 100, 300, true}, {"orders-db", 0, 0, false}, {"payment", 99, 100, true},
			{"queue-master", 100, 300, true}, {"rabbitmq", 0, 0, false}, {"session-db", 0, 0, false}, {"shipping", 100, 300, true},
			{"user", 100, 100, true}, {"user-db", 0, 0, false},
		}},
		// kubernetes-manifests of github.com/GoogleCloudPlatform/bank-of-anthos.
		{"bank", "Bank of Anthos", []deployment{
			{"accounts-db", 100, 128, false}, {"balancereader", 200, 256, true}, {"contacts", 100, 64, true}, {"frontend", 100, 64, true},
			{"ledger-db", 100, 512, false}, {"ledgerwriter", 100, 256, true}, {"loadgenerator", 100, 512, false},
			{"transactionhistory", 100, 256, true}, {"userservice", 260, 128, true},
		}},
	}
}

// installed is one pod of each Deployment, for each team.
func installed(a application) []Pod {
	var pods []Pod
	for n := range installations {
		for _, d := range a.deployments {
			app := fmt.Sprintf("%s-%d", d.name, n)
			pods = append(pods, Pod{Name: app + "-0", App: app, MilliCPU: d.milliCPU, MiB: d.mib})
		}
	}
	return pods
}

// applicationOfDay is one installation whose Deployments have up to ten replicas.
func applicationOfDay(a application) []Pod {
	r, pods := random(2), []Pod{}
	for _, d := range a.deployments {
		pod := Pod{Name: d.name + "-0", App: d.name, MilliCPU: d.milliCPU, MiB: d.mib}
		if !d.grows {
			pods = append(pods, pod)
			continue
		}
		pods = append(pods, scaled(r, pod, 10)...)
	}
	return inOrder(pods)
}
