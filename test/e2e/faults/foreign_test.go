// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// foreignServers are servers that no run may touch: those of another cluster with the same name, and one of a user.
func foreignServers() []cloud.ServerSpec {
	return []cloud.ServerSpec{
		{Name: "default-x7k2p-0a1b2c3d", Zone: "HN1", Wan: true, Metadata: map[string]string{
			v1alpha1.MetadataClusterUID: "another-cluster", v1alpha1.MetadataNodeClaimUID: "claim-of-another-cluster",
			v1alpha1.MetadataClusterName: "sandbox", v1alpha1.MetadataNodePool: "default",
		}},
		{Name: "default-without-uid", Zone: "HN2", Metadata: map[string]string{
			v1alpha1.MetadataClusterName: "sandbox", v1alpha1.MetadataNodePool: "default",
		}},
		{Name: "database", Zone: "HN1", Wan: true},
	}
}

func addForeignServers() {
	GinkgoHelper()
	for _, spec := range foreignServers() {
		spec.Status = foreignStatus()
		var created cloud.Server
		Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &created)).To(Succeed())
		checker.AddForeignServers(created)
	}
}

// addVolume creates a volume that must remain.
func addVolume(spec cloud.VolumeSpec) cloud.Volume {
	GinkgoHelper()
	var created cloud.Volume
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "volumes", spec, &created)).To(Succeed())
	checker.AddForeignVolume(created.ID, created.Name, time.Now())
	return created
}

func attach(volume cloud.Volume, server cloud.Server) {
	GinkgoHelper()
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "volumes/"+volume.ID+"/attach", map[string]string{"server_id": server.ID}, nil)).To(Succeed())
}
