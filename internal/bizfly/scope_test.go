// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The scope of a rejection", func() {
	DescribeTable("should be what the words name", func(ctx context.Context, message string, class bizfly.Class, scope bizfly.ErrorScope) {
		sandbox := startSandbox(cloud.Options{})
		client, err := newClient(sandboxConfig(sandbox))
		Expect(err).ToNot(HaveOccurred())
		request := acceptedRequest(ctx, client)
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: message})
		_, err = client.CreateServer(ctx, request)
		Expect(typed(err).Class).To(Equal(class))
		Expect(bizfly.ScopeOf(fmt.Errorf("launching: %w", err))).To(Equal(scope))

		By("a task that fails with the same words")
		Expect(bizfly.ScopeOf(bizfly.TaskFailure("t", "", message))).To(Equal(scope))
	},
		Entry("no host", "No valid host was found. There are not enough hosts available.", bizfly.ClassCapacity, bizfly.ScopeOffering),
		Entry("no host, in Vietnamese", "Không đủ tài nguyên để khởi tạo máy chủ", bizfly.ClassCapacity, bizfly.ScopeOffering),
		Entry("a flavor that a zone does not have", "Flavor p4a.2c_4g is not available in availability zone HN2: not sold in this zone", bizfly.ClassCapacity,
			bizfly.ScopeOffering),
		Entry("a plan", "Flavor x doesn't support billing plan saving_plan", bizfly.ClassCapacity, bizfly.ScopePlan),
		Entry("a zone", "Availability zone HN1 is full", bizfly.ClassCapacity, bizfly.ScopeZone),
		Entry("a zone, in Vietnamese", "Vùng HN1 hiện tạm hết tài nguyên", bizfly.ClassCapacity, bizfly.ScopeZone),
		Entry("a category", "Server type dedicated is out of stock", bizfly.ClassCapacity, bizfly.ScopeCategory),
		Entry("a network", "No more IP addresses available on network 3f2504e0-4f89-41d3-9a0c-0305e82c3301.", bizfly.ClassCapacity, bizfly.ScopeNetwork),
		Entry("a network, in Vietnamese", "Không đủ địa chỉ IP", bizfly.ClassCapacity, bizfly.ScopeNetwork),
		Entry("public addresses", "No more IP addresses available on the public network", bizfly.ClassCapacity, bizfly.ScopeOffering),
		Entry("vCPUs", "Quota exceeded for cores: Requested 8, but already used 16 of 20 cores", bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("memory, in Vietnamese", "Vượt quá hạn mức cho phép của tài khoản: ram (hạn mức 65536)", bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("servers beside vCPUs", "Quota exceeded for cores, instances: Requested 2, 1", bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("vCPUs of a server", "Failed to create server: Quota exceeded for cores: Requested 8, but already used 96 of 100 cores", bizfly.ClassQuota,
			bizfly.ScopeSize),
		Entry("memory of an instance", "Cannot create instance web-1: Quota exceeded for ram: Requested 65536, but already used 190000 of 204800 ram",
			bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("vCPUs of a server with a name", "Quota exceeded for cores when creating server web-x7k2p", bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("vCPUs of a server, in Vietnamese", "Hạn mức vCPU của bạn không đủ để tạo server", bizfly.ClassQuota, bizfly.ScopeSize),
		Entry("disks", "Quota exceeded for volumes, gigabytes", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("disks of one type", "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes_BASIC-HDD1 quota. Requested 100G, "+
			"quota is 500G and 450G has been consumed.", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("a volume type", "Volume quota exceeded for volume type DEDICATED-SSD1", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("addresses, in Vietnamese", "Bạn đã vượt quá hạn mức IP Wan của dịch vụ", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("servers", "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("nothing", "Hạn mức tài khoản đã hết", bizfly.ClassQuota, bizfly.ScopeNodeClass),
		Entry("money", "Insufficient balance", bizfly.ClassBalance, bizfly.ScopeAccount),
		Entry("a missing permission", "You are not allowed to do this", bizfly.ClassPermission, bizfly.ScopeNodeClass),
		Entry("a limit of one request", "Root disk size exceeds the maximum allowed", bizfly.ClassInvalid, bizfly.ScopeOffering),
		Entry("a limit of one request, in Vietnamese", "Dung lượng ổ đĩa vượt quá giới hạn cho phép", bizfly.ClassInvalid, bizfly.ScopeOffering),
		Entry("a limit of the NodeClass", "Number of firewall rules exceeds the allowed maximum", bizfly.ClassInvalid, bizfly.ScopeNodeClass),
	)
	It("should be the offering for an error that is not the cloud's", func() {
		Expect(bizfly.ScopeOf(errors.New("zone HN1 is full"))).To(Equal(bizfly.ScopeOffering))
	})
})
