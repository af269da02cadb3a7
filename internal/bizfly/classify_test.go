// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/text/unicode/norm"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// sample is an answer, the row that must decide about it and the class that it must get.
type sample struct {
	row     string
	kind    string
	status  int
	plain   bool
	message string
	class   bizfly.Class
}

var samples = []sample{
	{row: "unauthorized", kind: "list", status: 401, message: "quota", class: bizfly.ClassAuth},
	{row: "payment required", kind: "create", status: 402, message: "", class: bizfly.ClassBalance},
	{row: "too many requests", kind: "create", status: 429, message: "quota exceeded", class: bizfly.ClassThrottled},
	{row: "redirect", kind: "list", status: 302, class: bizfly.ClassOutage},
	{row: "404 that is not JSON", kind: "item", status: 404, plain: true, message: "not found", class: bizfly.ClassOutage},
	{row: "404 of a gateway in JSON", kind: "item", status: 404, message: "no Route matched with those values", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 502, message: "An invalid response was received from the upstream server",
		class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 504, message: "The upstream server is timing out", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "delete", status: 503, message: "failure to get a peer from the ring-balancer", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 500, message: "Vượt quá thời gian chờ phản hồi", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 500, message: "QueuePool limit of size 5 overflow 10 reached, connection timed out",
		class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 504, message: "The server took too long to respond", class: bizfly.ClassOutage},
	{row: "404 to a list", kind: "list", status: 404, message: "Resource not found", class: bizfly.ClassOutage},
	{row: "404 for the object", kind: "item", status: 404, message: "Instance x could not be found.", class: bizfly.ClassNotFound},
	{row: "404 for the object", kind: "delete", status: 404, message: "Không tìm thấy máy chủ", class: bizfly.ClassNotFound},

	{row: "says too many requests", kind: "create", status: 403, message: "API rate limit exceeded", class: bizfly.ClassThrottled},
	{row: "says too many requests", kind: "create", status: 503, message: "Quá nhiều yêu cầu", class: bizfly.ClassThrottled},

	{row: "says no money", kind: "create", status: 403, message: "Insufficient balance", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 400, message: "Tài khoản bị âm, vui lòng nạp thêm tiền", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 400, message: "Số dư tài khoản không đủ", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "negative balance", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 403, message: "Tài khoản bị chặn do hết hạn dùng thử", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 403, message: "Dịch vụ đã quá hạn thanh toán", class: bizfly.ClassBalance},

	{row: "says what the request holds", kind: "create", status: 400, message: "Tên vượt quá 63 ký tự", class: bizfly.ClassInvalid},
	{row: "says what the request holds", kind: "create", status: 400, message: "Maximum number of metadata items exceeds 128", class: bizfly.ClassInvalid},
	{row: "says what the request holds", kind: "create", status: 400, message: "User data too large: 90000 bytes", class: bizfly.ClassInvalid},
	{row: "says what the request holds", kind: "create", status: 400, message: "Network 1 is not available in zone HN2", class: bizfly.ClassInvalid},
	{row: "says what the request holds", kind: "create", status: 400, message: "Image 1 is not supported in zone HN2", class: bizfly.ClassInvalid},

	{row: "says quota", kind: "create", status: 403, message: "Quota exceeded for cores, instances: Requested 4, but already used 8 of 10 cores",
		class: bizfly.ClassQuota},
	{row: "says quota", kind: "create", status: 403, message: "Vượt quá hạn mức cho phép của tài khoản", class: bizfly.ClassQuota},
	{row: "says quota", kind: "create", status: 413, message: "overLimit: VolumeSizeExceedsAvailableQuota", class: bizfly.ClassQuota},
	{row: "says quota", kind: "task", message: "Không đủ hạn mức", class: bizfly.ClassQuota},

	{row: "says no capacity", kind: "create", status: 409, message: "No valid host was found. There are not enough hosts available.", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures",
		class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 409, message: "No more IP addresses available on network 1.", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 409, message: "Không đủ địa chỉ IP trong mạng 1", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 500, message: "Không đủ tài nguyên để khởi tạo máy chủ", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 400, message: "Flavor 2c_4g không được hỗ trợ tại HN2", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 400, message: "Flavor 2c_4g does not support billing plan on_demand", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "create", status: 400, message: "The requested availability zone is not available: HN3", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Gói này tạm hết hàng, vui lòng thử lại sau ít phút", class: bizfly.ClassCapacity},

	{row: "says a limit", kind: "create", status: 403, message: "Maximum number of ports exceeded", class: bizfly.ClassInvalid},
	{row: "says a limit", kind: "create", status: 400, message: "Số lượng máy chủ vượt quá cho phép", class: bizfly.ClassInvalid},

	{row: "says not allowed", kind: "create", status: 400, message: "Policy doesn't allow os_compute_api:servers:create", class: bizfly.ClassPermission},
	{row: "says not allowed", kind: "task", message: "Bạn không có quyền thực hiện", class: bizfly.ClassPermission},

	{row: "says busy", kind: "delete", status: 400, message: "Cannot 'delete' instance while it is in task_state deleting", class: bizfly.ClassConflict},
	{row: "says busy", kind: "delete", status: 400, message: "Invalid volume: Volume status must be available or error", class: bizfly.ClassConflict},
	{row: "says busy", kind: "delete", status: 403, message: "Máy chủ đang bị khóa", class: bizfly.ClassConflict},

	{row: "says the request is wrong", kind: "task", message: "Image 1 could not be found.", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "Flavor's disk is too small for requested image.", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "create", status: 500, message: "Volume type SSD không được hỗ trợ cho premium tại HN1", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "create", status: 400, message: "Dữ liệu không hợp lệ", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "create", status: 400, message: "Một số dữ liệu không hợp lệ", class: bizfly.ClassInvalid},
	{row: "says to come back", kind: "task", message: "Vui lòng thử lại sau ít phút", class: bizfly.ClassThrottled},

	{row: "forbidden", kind: "create", status: 403, message: "no", class: bizfly.ClassPermission},
	// The account is asked then whether it is unpaid.
	{row: "forbidden", kind: "list", status: 403, message: "Bị chặn", class: bizfly.ClassPermission},
	{row: "forbidden", kind: "create", status: 403, message: "Cổng 25 bị chặn", class: bizfly.ClassPermission},
	{row: "404 to a create", kind: "create", status: 404, message: "?", class: bizfly.ClassInvalid},
	{row: "bad request", kind: "create", status: 400, message: "?", class: bizfly.ClassInvalid},
	{row: "bad request", kind: "create", status: 400, message: "Cổng 25 bị chặn theo chính sách", class: bizfly.ClassInvalid},
	{row: "bad request", kind: "create", status: 422, message: "?", class: bizfly.ClassInvalid},
	{row: "bad request", kind: "create", status: 413, message: "?", class: bizfly.ClassInvalid},
	{row: "conflict", kind: "delete", status: 409, message: "?", class: bizfly.ClassConflict},
	{row: "request timeout", kind: "list", status: 408, class: bizfly.ClassOutage},
	{row: "server error", kind: "list", status: 500, message: "Internal Server Error", class: bizfly.ClassOutage},
	{row: "server error", kind: "create", status: 500, message: "Lỗi cơ sở dữ liệu", class: bizfly.ClassOutage},
	{row: "server error", kind: "create", status: 500, message: "Có lỗi xảy ra, vui lòng thử lại sau ít phút", class: bizfly.ClassOutage},
	{row: "success that is no answer", kind: "list", status: 101, class: bizfly.ClassOutage},
	// Each text that a row knows, alone.
	{row: "404 of a gateway in JSON", kind: "item", status: 404, message: "The requested URL was not found", class: bizfly.ClassOutage},
	{row: "404 of a gateway in JSON", kind: "item", status: 404, message: "no such route", class: bizfly.ClassOutage},
	{row: "404 of a gateway in JSON", kind: "delete", status: 404, message: "Cannot DELETE /servers/1", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 502, message: "Bad Gateway", class: bizfly.ClassOutage},
	{row: "5xx of a gateway in JSON", kind: "create", status: 504, message: "Gateway Time-out", class: bizfly.ClassOutage},
	{row: "says too many requests", kind: "task", message: "Too many requests", class: bizfly.ClassThrottled},
	{row: "says no money", kind: "task", message: "Your balance is negative", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "out of credit", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Payment required", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "There is an unpaid invoice", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Tài khoản hết hạn dùng thử", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Tài khoản của bạn đang bị khóa", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Không đủ tiền", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Không đủ số dư.", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Không đủ số dư để tạo máy chủ", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 400, message: "Số dư trong ví chưa đủ", class: bizfly.ClassBalance},
	{row: "says no money", kind: "create", status: 400, message: "Số dư chưa đủ", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Số dư bị âm", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Tài khoản đã hết tiền", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Vui lòng nạp thêm tiền", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Tài khoản đang âm", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Khách hàng nợ cước", class: bizfly.ClassBalance},
	{row: "says no money", kind: "task", message: "Dịch vụ chưa thanh toán", class: bizfly.ClassBalance},
	{row: "says what the request holds", kind: "task", message: "Name has 70 characters", class: bizfly.ClassInvalid},
	{row: "says quota", kind: "task", message: "over limit of volumes", class: bizfly.ClassQuota},
	{row: "says quota", kind: "task", message: "Vượt hạn ngạch", class: bizfly.ClassQuota},
	{row: "says no capacity", kind: "task", message: "Exhausted all hosts", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Exceeded maximum number of retries", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Not enough memory", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "There are not enough resources", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Insufficient compute", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "No available capacity", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "The flavor is sold out", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "No free addresses left", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "no ip addresses", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Hết tài nguyên", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Gói tạm hết", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Không còn máy chủ", class: bizfly.ClassCapacity},
	{row: "says no capacity", kind: "task", message: "Mạng đã hết địa chỉ", class: bizfly.ClassCapacity},
	{row: "says a limit", kind: "task", message: "Limit of disks was reached", class: bizfly.ClassInvalid},
	{row: "says a limit", kind: "task", message: "maximum number of disks is 8", class: bizfly.ClassInvalid},
	{row: "says a limit", kind: "task", message: "Đã quá giới hạn", class: bizfly.ClassInvalid},
	{row: "says a limit", kind: "task", message: "Đã đạt giới hạn", class: bizfly.ClassInvalid},
	{row: "says a limit", kind: "task", message: "Quá số lượng đĩa", class: bizfly.ClassInvalid},
	{row: "says not allowed", kind: "task", message: "Permission denied", class: bizfly.ClassPermission},
	{row: "says not allowed", kind: "task", message: "This is forbidden", class: bizfly.ClassPermission},
	{row: "says busy", kind: "task", message: "The name already exists", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "The instance is locked", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "Not while it is in rescue", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "vm_state building", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "Máy chủ đã tồn tại", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "Ổ đĩa đang được sử dụng", class: bizfly.ClassConflict},
	{row: "says busy", kind: "task", message: "Yêu cầu đang xử lý", class: bizfly.ClassConflict},
	{row: "says the request is wrong", kind: "task", message: "The image was not found", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "The type is not supported", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "The key does not exist", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "The name is invalid", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "The body is malformed", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "flavor is required", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "Mạng không tồn tại", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "Không tìm thấy mạng", class: bizfly.ClassInvalid},
	{row: "says the request is wrong", kind: "task", message: "Trường name là bắt buộc", class: bizfly.ClassInvalid},
	{row: "", kind: "task", message: "Có lỗi xảy ra", class: bizfly.ClassUnknown},
	{row: "", kind: "list", status: 418, message: "teapot", class: bizfly.ClassUnknown},
}

var _ = Describe("Classification", func() {
	for _, s := range samples {
		It(fmt.Sprintf("should decide %d %q (%s) by %q", s.status, s.message, s.kind, s.row), func() {
			row, class := bizfly.Classify(s.kind, s.status, !s.plain, s.message)
			Expect(row).To(Equal(s.row))
			Expect(class).To(Equal(s.class))
		})
	}

	It("should have a sample for every row", func() {
		covered := map[string]bool{}
		for _, s := range samples {
			covered[s.row] = true
		}
		for _, name := range bizfly.RuleNames() {
			Expect(covered).To(HaveKey(name))
		}
	})
	DescribeTable("should read Vietnamese however it is spelled", func(spell func(string) string) {
		_, class := bizfly.Classify("create", 400, true, spell("VƯỢT QUÁ HẠN MỨC của đơn vị"))
		Expect(class).To(Equal(bizfly.ClassQuota))
	},
		Entry("composed", norm.NFC.String), Entry("decomposed", norm.NFD.String),
		Entry("without marks", func(string) string { return "VUOT QUA HAN MUC cua don vi" }),
	)
})

var _ = Describe("APIError", func() {
	predicates := map[bizfly.Class]func(error) bool{
		bizfly.ClassNotFound: bizfly.IsNotFound, bizfly.ClassAuth: bizfly.IsAuth, bizfly.ClassPermission: bizfly.IsPermission,
		bizfly.ClassInvalid: bizfly.IsInvalid, bizfly.ClassConflict: bizfly.IsConflict, bizfly.ClassOutage: bizfly.IsOutage,
	}
	for class, predicate := range predicates {
		It(fmt.Sprintf("should have a predicate for %s and no other class", class), func() {
			wrapped := fmt.Errorf("launching, %w", &bizfly.APIError{Class: class})
			Expect(bizfly.ClassOf(wrapped)).To(Equal(class))
			Expect(predicate(wrapped)).To(BeTrue())
			for other, predicate := range predicates {
				Expect(predicate(wrapped)).To(Equal(other == class), string(other))
			}
			Expect(predicate(errors.New("x"))).To(BeFalse())
			Expect(predicate(nil)).To(BeFalse())
		})
	}

	It("should tell ambiguous from not sent", func() {
		Expect(bizfly.IsAmbiguous(fmt.Errorf("x, %w", &bizfly.APIError{Ambiguous: true}))).To(BeTrue())
		Expect(bizfly.IsNotSent(&bizfly.APIError{Ambiguous: true})).To(BeFalse())
		Expect(bizfly.IsNotSent(fmt.Errorf("x, %w", &bizfly.APIError{NotSent: true}))).To(BeTrue())
		Expect(bizfly.IsAmbiguous(&bizfly.APIError{NotSent: true})).To(BeFalse())
		Expect(bizfly.IsAmbiguous(nil)).To(BeFalse())
	})
	It("should say everything on one line and unwrap to its cause", func() {
		cause := errors.New("broken pipe")
		err := &bizfly.APIError{
			Operation: "CreateServer", Status: 503, Code: "UNKNOWN", Message: "quá tải", Class: bizfly.ClassOutage,
			RetryAfter: 2 * time.Second, Ambiguous: true, Err: cause,
		}
		Expect(err.Error()).To(Equal("bizfly cloud: CreateServer: Outage (status 503, code UNKNOWN, outcome unknown, retry after 2s): quá tải: broken pipe"))
		Expect(errors.Is(err, cause)).To(BeTrue())
		Expect((&bizfly.APIError{NotSent: true}).Error()).To(Equal("bizfly cloud: Unknown (not sent)"))
		Expect((&bizfly.APIError{NotSent: true, RetryAfter: 767 * time.Millisecond}).Error()).To(Equal("bizfly cloud: Unknown (not sent)"),
			"conditions would change with each attempt")
		Expect((&bizfly.APIError{Status: 503, Class: bizfly.ClassOutage}).Error()).To(Equal("bizfly cloud: Outage (status 503)"))
		Expect((&bizfly.APIError{Message: "quá tải"}).Error()).To(Equal("bizfly cloud: Unknown: quá tải"))
	})
	DescribeTable("should give a failed task the class of a rejection with the same text",
		func(action, message string, is func(error) bool, text string) {
			err := bizfly.TaskFailure("t-1", action, message)
			Expect(is(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(text)))
		},
		Entry("capacity", "create_server", "No valid host was found.", ofClass(bizfly.ClassCapacity), "create_server"),
		Entry("quota", "", "Vượt quá hạn mức", ofClass(bizfly.ClassQuota), "Vượt quá hạn mức"),
		Entry("image", "", "Image x could not be found.", bizfly.IsInvalid, "Image x"),
		Entry("no reason", "", "", ofClass(bizfly.ClassUnknown), "task t-1 failed without a reason"),
		Entry("words behind a name of secrets, which are not shown", "", "user_data: too long", bizfly.IsInvalid, "user_data: [REDACTED]"),
		Entry("words after many others, which are not shown", "",
			strings.Repeat("trace ", 1000)+"No valid host was found.", ofClass(bizfly.ClassCapacity), "trace t…"),
	)
})

var _ = Describe("Redaction of what a create request carries", func() {
	It("should find user data of any length, and secret metadata", func() {
		request := &gobizfly.ServerCreateRequest{
			UserData: "#!/bin/sh\nexport JOIN_WITH=abcdef.0123456789abcdef\n" + strings.Repeat("echo this is one of many lines\n", 300),
			Metadata: map[string]string{"bke_cluster_token": "MARKED-1", "name": "kept-name"},
		}
		Expect(bizfly.RedactedOf(request, "rejected: "+request.UserData)).To(Equal("rejected: [REDACTED]\n"))
		Expect(bizfly.RedactedOf(request, "cloud-init: line 2: export JOIN_WITH=abcdef.0123456789abcdef: bad substitution")).
			ToNot(ContainSubstring("abcdef.0123456789abcdef"))
		Expect(bizfly.RedactedOf(request, "MARKED-1 of kept-name")).To(Equal("[REDACTED] of kept-name"))
	})
})

// ofClass reports whether an error has the class.
func ofClass(class bizfly.Class) func(error) bool {
	return func(err error) bool { return bizfly.ClassOf(err) == class }
}

var _ = Describe("The scope of a failure", func() {
	DescribeTable("should be", func(kind string, status int, message string, scope bizfly.ErrorScope) {
		Expect(bizfly.ScopeOfFailure(kind, status, message)).To(Equal(scope))
	},
		Entry("the account without credentials", "create", 401, "", bizfly.ScopeAccount),
		Entry("the account without money", "create", 402, "", bizfly.ScopeAccount),
		Entry("the NodeClass that writes the user data", "create", 400, "User data too large", bizfly.ScopeNodeClass),
		Entry("the NodeClass that names the image", "create", 400, "Image 1 could not be found", bizfly.ScopeNodeClass),
		Entry("the NodeClass whose field nothing recognises", "create", 400, "E_1 ssh key", bizfly.ScopeNodeClass),
		Entry("the NodeClass whose network is not there", "create", 404, "E_1 network", bizfly.ScopeNodeClass),
		Entry("the offering where nothing is named", "create", 404, "E_1", bizfly.ScopeOffering),
	)
})

var _ = Describe("What an error allows", func() {
	DescribeTable("should be the same request again only where it had no effect and time alone can help", func(err *bizfly.APIError, retryable bool) {
		Expect(bizfly.IsRetryable(fmt.Errorf("launching: %w", err))).To(Equal(retryable))
	},
		Entry("an unknown outcome", &bizfly.APIError{Status: 429, Ambiguous: true}, false),
		Entry("not sent for want of time", &bizfly.APIError{Class: bizfly.ClassThrottled, NotSent: true}, true),
		Entry("not sent, since it is wrong", &bizfly.APIError{Class: bizfly.ClassInvalid, NotSent: true}, false),
		Entry("not sent, since nobody may log in", &bizfly.APIError{Class: bizfly.ClassAuth, NotSent: true}, false),
		Entry("a gateway that says when to come back", &bizfly.APIError{Status: 503, Class: bizfly.ClassOutage, RetryAfter: time.Second}, true),
		Entry("a gateway that does not", &bizfly.APIError{Status: 503, Class: bizfly.ClassOutage}, false),
		Entry("a rejection that says when to come back", &bizfly.APIError{Status: 503, Class: bizfly.ClassCapacity, RetryAfter: time.Second}, false),
		Entry("a rate limit", &bizfly.APIError{Status: 429, Class: bizfly.ClassThrottled}, true),
		Entry("too early", &bizfly.APIError{Status: 425, Class: bizfly.ClassThrottled}, true),
		Entry("a rate limit in words alone", &bizfly.APIError{Status: 403, Class: bizfly.ClassThrottled}, false),
	)
	DescribeTable("should be another form where nothing else is named", func(err *bizfly.APIError, form bool) {
		Expect(bizfly.MayBeForm(err)).To(Equal(form))
	},
		Entry("a rejected request", &bizfly.APIError{Class: bizfly.ClassInvalid}, true),
		Entry("one that names what the NodeClass decides", &bizfly.APIError{Class: bizfly.ClassInvalid, Scope: bizfly.ScopeNodeClass}, false),
		Entry("one that was not sent", &bizfly.APIError{Class: bizfly.ClassInvalid, NotSent: true}, false),
		Entry("capacity", &bizfly.APIError{Class: bizfly.ClassCapacity}, false),
	)
	DescribeTable("should be another form of a task that failed", func(message string, form bool) {
		Expect(bizfly.MayBeForm(bizfly.TaskFailure("t", "", message))).To(Equal(form))
	},
		Entry("with words that nothing recognises", "E_4711", true),
		Entry("that names the image", "E_4711 of the image", false),
		Entry("without a word", "", false),
		Entry("for want of capacity", "No valid host was found", false),
	)
	DescribeTable("should be another type of disk where the message names it", func(message string, named bool) {
		Expect(bizfly.NamesVolumeType(&bizfly.APIError{Message: message})).To(Equal(named))
	},
		Entry("in English", "Invalid volume type", true),
		Entry("as a field", "rootdisk.type is wrong", true),
		Entry("in Vietnamese", "Loại ổ đĩa không hợp lệ", true),
		Entry("not at all", "Invalid flavor", false),
	)
	DescribeTable("should be another name of the flavor where the message names the offering", func(message string, named bool) {
		Expect(bizfly.NamesOffering(&bizfly.APIError{Message: message})).To(Equal(named))
	},
		Entry("the flavor", "Flavor 2c_4g could not be found.", true),
		Entry("the flavor in Vietnamese", "Không tìm thấy cấu hình 2c_4g", true),
		Entry("the flavor in other words", "Gói nix.2c_4g đã ngừng cung cấp", true),
		Entry("the plan as a field", "billing_plan không hợp lệ: x", true),
		Entry("the category as a field", "type không hợp lệ: x", true),
		Entry("a size", "Root disk size exceeds the maximum allowed", true),
		Entry("nothing", "Dữ liệu không hợp lệ", false),
		Entry("nothing that is known", "E_4711", false),
	)
})
