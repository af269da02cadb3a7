// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/samber/lo"
	"golang.org/x/text/unicode/norm"
)

// kind is what sort of call failed: a 404 to a read of one object means something else than a 404 to a list.
type kind string

const (
	kindList   kind = "list"
	kindItem   kind = "item"
	kindCreate kind = "create"
	// kindAction is a change of one object that must not be repeated before its effect is known.
	kindAction kind = "action"
	kindDelete kind = "delete"
	kindTask   kind = "task"
)

// failure is all that the classification looks at.
type failure struct {
	kind    kind
	status  int
	json    bool
	message string
}

// rule is one row of the table. Every condition that is set must hold; the first row that matches decides.
type rule struct {
	name     string
	statuses []span
	kinds    []kind
	// json restricts the row to answers that are a JSON object or text (or a task's result), notJSON to those that are
	// not.
	json, notJSON bool
	// patterns are what the message may say.
	patterns []*regexp.Regexp
	class    Class
	// scope is how far the failure reaches, unless the message widens or narrows it: the first of the words that matches
	// decides.
	scope ErrorScope
	words []scopeWords
}

// scopeWords is what a message names when the failure has this scope.
type scopeWords struct {
	scope   ErrorScope
	pattern *regexp.Regexp
}

func names(scope ErrorScope, pattern string) scopeWords {
	return scopeWords{scope: scope, pattern: says(pattern)[0]}
}

// requestWords name what a NodeClass decides, so that no other offering would help. Whatever names nothing of it
// concerns the offering.
var requestWords = []scopeWords{
	names(ScopeNodeClass, `\bimage\b|\bsnapshot\b|key_?name|key ?pair|ssh.?key|\bnetwork\b|\bvpc\b|\bsubnet\b|firewall|`+
		`security.?group|user.?data|metadata`),
}

// quotaWords: a quota of vCPUs or memory leaves capacity for smaller servers, whatever else the sentence around it
// names. Any other, of disks, addresses or a network, is met by those who use the same; who does finds out by a failed
// launch of its own.
var quotaWords = []scopeWords{names(ScopeSize, `\bcores?\b|\bv?cpus?\b|\bram\b|\bmemory\b|bộ nhớ|số nhân`)}

// capacityWords: a flavor that a zone lacks concerns that flavor, a zone that is full all of them.
var capacityWords = []scopeWords{
	names(ScopePlan, `does(n't| not) support billing plan`),
	names(ScopeZone, `(availability )?zone [^ ]* ?(is |are )?(full|not available|unavailable|sold out|`+
		`out of (capacity|stock|resources?))|`+
		`(zone|vùng|khu vực) .*(đã đầy|hết tài nguyên|tạm hết|không còn (đủ )?tài nguyên)`),
	names(ScopeCategory, `(category|server type|compute class) .*(full|not available|unavailable|sold out|`+
		`out of (capacity|stock|resources?)|disabled)|`+
		`(loại|dòng) máy chủ .*(hết|tạm hết|không còn)`),
	// Public addresses belong to no network of the project's.
	names(ScopeOffering, `\b(wan|public|external|floating)\b|công cộng`),
	names(ScopeNetwork, `\bip addresses\b|address(es)? (is |are )?(available|left)|`+
		`(hết|không đủ|không còn( đủ)?) địa chỉ`),
}

type span struct{ from, to int }

func is(statuses ...int) []span {
	return lo.Map(statuses, func(status, _ int) span { return span{status, status} })
}

// says compiles patterns, which match without regard to case and to Vietnamese diacritics.
func says(patterns ...string) []*regexp.Regexp {
	return lo.Map(patterns, func(pattern string, _ int) *regexp.Regexp {
		return regexp.MustCompile(`(?i)` + withoutMarks(pattern))
	})
}

// texted are the statuses whose message may say more than the status does; 0 is a failed task.
var texted = append(is(0, 400, 403, 404, 409, 412, 413, 422, 423), span{500, 599})

// rejected are those among them where the message may say that the request itself is wrong.
var rejected = append(is(0, 400, 404, 422), span{500, 599})

// statusRules decide by the status alone, whatever the text says.
var statusRules = []rule{
	{name: "unauthorized", statuses: is(401), class: ClassAuth, scope: ScopeAccount},
	{name: "payment required", statuses: is(402), class: ClassBalance, scope: ScopeAccount},
	{name: "too many requests", statuses: is(425, 429), class: ClassThrottled},
	{name: "redirect", statuses: []span{{300, 399}}, class: ClassOutage},
	// A gateway's page says nothing about the object: "gone" would make us forget a running server.
	{name: "404 that is not JSON", statuses: is(404), notJSON: true, class: ClassOutage},
	{name: "404 of a gateway in JSON", statuses: is(404), class: ClassOutage, patterns: says(
		`no route matched`, `requested url was not found`, `no such route`, `cannot (get|post|delete) /`,
	)},
	// A gateway that lost the answer does not know what became of the request, whatever words it has for that.
	{name: "5xx of a gateway in JSON", statuses: []span{{500, 599}}, class: ClassOutage, patterns: says(
		`\bupstream\b`, `ring-?balancer`, `bad gateway`, `\btimed?[- ]?out\b`, `took too long`,
		`quá thời gian`, `thời gian chờ`,
	)},
	{name: "404 to a list", statuses: is(404), kinds: []kind{kindList}, class: ClassOutage},
	{name: "404 for the object", statuses: is(404), kinds: []kind{kindItem, kindDelete, kindAction}, json: true,
		class: ClassNotFound},
}

// messageRules decide by what the cloud says: OpenStack's texts in English and BizFly's in Vietnamese. The order
// matters where words overlap: "exceeded maximum number of retries" is capacity, "maximum number of ports" is quota.
var messageRules = []rule{
	{name: "says too many requests", statuses: texted, class: ClassThrottled, patterns: says(
		`rate limit`, `too many requests`, `quá nhiều yêu cầu`,
	)},
	{name: "says no money", statuses: texted, class: ClassBalance, scope: ScopeAccount, patterns: says(
		`(insufficient|negative|not enough|low) (account )?(balance|funds|credit|money)`,
		`balance (is )?(insufficient|negative|not enough)`,
		`out of credit`, `payment required`, `unpaid (invoice|bill)`,
		// The only table of errors that BizFly Cloud publishes: "403: bị chặn do hết hạn dùng thử, quá hạn thanh toán hoặc lý
		// do khác" (documentation of the container registry's API). A port can be blocked (bị chặn) as well.
		`hết hạn dùng thử`, `quá hạn thanh toán`, `tài khoản .*bị (tạm )?(chặn|khóa)`,
		// Without marks, a database (cơ sở dữ liệu) and some data (một số dữ liệu) begin like a balance.
		`\bsố dư($|[^\w ]| (trong|tài khoản|ví|của|hiện|khả dụng|không|chưa|còn|là|bị|âm|thấp|dưới|nhỏ|ít|tối thiểu|để)\b)`,
		`không đủ tiền`, `hết tiền`, `nạp (thêm )?tiền`, `tài khoản (bị |đang )?âm\b`, `nợ cước`, `chưa thanh toán`,
	)},
	// Limits of the request's own texts are no quota, and a network that a zone lacks is no want of hosts.
	{name: "says what the request holds", statuses: rejected, class: ClassInvalid, scope: ScopeNodeClass, patterns: says(
		`too (long|large)`, `\bcharacters\b`, `\bký tự\b`, `\bmetadata\b`,
		`\b(network|image|snapshot)\b .*not (available|supported|offered) in`,
	)},
	{name: "says quota", statuses: texted, class: ClassQuota, scope: ScopeNodeClass, words: quotaWords, patterns: says(
		`quota`, `over ?limit`, `hạn mức`, `hạn ngạch`,
	)},
	{name: "says no capacity", statuses: texted, class: ClassCapacity, words: capacityWords, patterns: says(
		`no valid host`, `exhausted all hosts`, `exceeded maximum number of retries`,
		`not enough (hosts?|resources?|capacity|memory|cpus?)`,
		`(insufficient|lack of|no) (available )?(capacity|resources?|compute|hosts?)\b`, `out of (stock|capacity|resources?)`,
		`sold out`,
		`no (more )?(free |available )?(ip )?address(es)? (is |are )?(available|left)`, `no (more )?ip addresses`,
		`not (sold|available|supported|offered) in (this |the )?(availability )?(zone|region)`,
		`availability zone .*(not available|is full)`,
		`does(n't| not) support billing plan`, `không (được )?(hỗ trợ|bán|cung cấp) tại`,
		`không đủ (tài nguyên|dung lượng|máy chủ|địa chỉ)`, `hết (tài nguyên|hàng|dung lượng)`, `tạm hết`,
		`không còn (đủ )?(tài nguyên|máy chủ|địa chỉ|chỗ)`, `hết địa chỉ`,
	)},
	// Limits without a word of quota are those of one request, never of the account.
	{name: "says a limit", statuses: texted, class: ClassInvalid, words: requestWords, patterns: says(
		`(limit|maximum number) .*(exceeded|reached)`, `exceed(s|ed)? .*\b(limit|maximum|allowed)\b`, `maximum number of`,
		`vượt quá`, `quá giới hạn`, `đạt giới hạn`, `quá số lượng`,
	)},
	{name: "says not allowed", statuses: rejected, class: ClassPermission, scope: ScopeNodeClass, patterns: says(
		`permission denied`, `not (allowed|authorized|permitted) to`, `policy does(n't| not) allow`, `forbidden`,
		`không có quyền`,
	)},
	{name: "says busy", statuses: append(is(0, 400, 403), span{500, 599}), class: ClassConflict, patterns: says(
		`already (exists|in use|attached)`, `is locked`, `while (it|the instance) is in`, `vm_state|task_state`,
		`status must be`,
		`đã tồn tại`, `đang được sử dụng`, `đang (được )?xử lý`, `bị khóa`,
	)},
	{name: "says the request is wrong", statuses: rejected, class: ClassInvalid, words: requestWords, patterns: says(
		`could not be found`, `not found`, `does(n't| not) exist`, `\binvalid\b`, `malformed`, `too small`, `not supported`,
		`is required`,
		`không tồn tại`, `không tìm thấy`, `không hợp lệ`, `không (được )?hỗ trợ`, `bắt buộc`,
	)},
	// Behind a 5xx it says nothing of why, and so not that nothing was built.
	{name: "says to come back", statuses: is(0, 400, 403, 409, 422, 423), class: ClassThrottled, patterns: says(
		`thử lại sau ít phút`,
	)},
}

// fallbackRules decide by the status where the text said nothing.
var fallbackRules = []rule{
	{name: "forbidden", statuses: is(403), class: ClassPermission, scope: ScopeNodeClass},
	{name: "404 to a create", statuses: is(404), kinds: []kind{kindCreate}, class: ClassInvalid, words: requestWords},
	{name: "bad request", statuses: is(400, 405, 406, 411, 413, 414, 415, 422, 431), class: ClassInvalid,
		words: requestWords},
	{name: "conflict", statuses: is(409, 412, 423), class: ClassConflict},
	{name: "request timeout", statuses: is(408), class: ClassOutage},
	{name: "server error", statuses: []span{{500, 599}}, class: ClassOutage},
	// Reached by what passed for success and could not be read.
	{name: "success that is no answer", statuses: []span{{100, 299}}, class: ClassOutage},
}

// rules are the complete table.
var rules = slices.Concat(statusRules, messageRules, fallbackRules)

// classify returns the class of a failure and its scope. Words never decide whether a failed launch marks its offering,
// only how much more is marked with it.
func classify(f failure) (Class, ErrorScope) {
	message := withoutMarks(f.message)
	for i := range rules {
		if rules[i].matches(f, message) {
			return rules[i].class, rules[i].scopeFor(message)
		}
	}
	return ClassUnknown, ScopeOffering
}

func (r *rule) scopeFor(message string) ErrorScope {
	named, ok := namedIn(r.words, message)
	return lo.Ternary(ok, named.scope, r.scope)
}

// namedIn returns the first of the words that the message names.
func namedIn(words []scopeWords, message string) (scopeWords, bool) {
	return lo.Find(words, func(w scopeWords) bool { return w.pattern.MatchString(message) })
}

func (r *rule) matches(f failure, message string) bool {
	switch {
	case len(r.kinds) > 0 && !slices.Contains(r.kinds, f.kind),
		!slices.ContainsFunc(r.statuses, func(s span) bool { return s.from <= f.status && f.status <= s.to }),
		r.json && !f.json, r.notJSON && f.json:
		return false
	}
	return len(r.patterns) == 0 || slices.ContainsFunc(r.patterns, func(m *regexp.Regexp) bool {
		return m.MatchString(message)
	})
}

// withoutMarks removes Vietnamese diacritics: the cloud's texts come composed, decomposed or without any.
func withoutMarks(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Mn, r):
			return -1
		case r == 'đ':
			return 'd'
		case r == 'Đ':
			return 'D'
		}
		return r
	}, norm.NFD.String(text))
}
