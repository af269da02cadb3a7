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

package bizfly

import (
	"errors"
	"regexp"

	"github.com/samber/lo"
)

// Reach is how far a want of room, quota or money goes beyond the order that was refused, as far as the words say so.
type Reach string

// The reaches.
const (
	// ReachOffering is the flavor in the zone with the billing plan that was ordered, and whatever names no more.
	ReachOffering Reach = ""
	// ReachPlan is the flavor with the billing plan, in every zone.
	ReachPlan Reach = "Plan"
	// ReachZone is every flavor in the zone.
	ReachZone Reach = "Zone"
	// ReachCategory is every flavor of the category in the zone.
	ReachCategory Reach = "Category"
	// ReachNetwork is every server in a VPC network of the order.
	ReachNetwork Reach = "Network"
	// ReachSize is whatever needs at least as many vCPUs and as much memory as what was ordered.
	ReachSize Reach = "Size"
	// ReachAccount is everything.
	ReachAccount Reach = "Account"
)

// reachRule is one row of the table: of those for the class of an error, the first that matches decides.
type reachRule struct {
	class   Class
	pattern *regexp.Regexp
	reach   Reach
}

func reachRow(class Class, reach Reach, pattern string) reachRule {
	return reachRule{class: class, reach: reach, pattern: regexp.MustCompile(`(?i)` + withoutMarks(pattern))}
}

// reachRules say what the words name. A quota that names servers, disks or addresses refuses every order, one that names
// only vCPUs or memory still has room for something smaller.
var reachRules = []reachRule{
	reachRow(ClassQuota, ReachAccount, `\binstances?\b|\bservers?\b|volumes?|gigabytes|floating_?ips?|\bports?\b|addresses|số (lượng )?máy chủ|ổ cứng|ổ đĩa|địa chỉ|dung lượng đĩa`),
	reachRow(ClassQuota, ReachSize, `\bcores?\b|\bv?cpus?\b|\bram\b|\bmemory\b|bộ nhớ|số nhân`),
	reachRow(ClassQuota, ReachAccount, ``),
	reachRow(ClassBalance, ReachAccount, ``),
	reachRow(ClassCapacity, ReachPlan, `does(n't| not) support billing plan`),
	// What is not sold in a zone is a matter of that flavor; a zone that is full is not.
	reachRow(ClassCapacity, ReachZone, `(availability )?zone [^ ]* ?(is |are )?(full|not available|unavailable|sold out|out of (capacity|stock|resources?))|(zone|vùng|khu vực) .*(đã đầy|hết tài nguyên|tạm hết|không còn (đủ )?tài nguyên)`),
	reachRow(ClassCapacity, ReachCategory, `(category|server type|compute class) .*(full|not available|unavailable|sold out|out of (capacity|stock|resources?)|disabled)|(loại|dòng) máy chủ .*(hết|tạm hết|không còn)`),
	// Public addresses belong to no network of the project's.
	reachRow(ClassCapacity, ReachOffering, `\b(wan|public|external|floating)\b|công cộng`),
	reachRow(ClassCapacity, ReachNetwork, `\bip addresses\b|address(es)? (is |are )?(available|left)|(hết|không đủ|không còn( đủ)?) địa chỉ`),
}

// anID is an id as the cloud gives to networks and other things.
var anID = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// IDsIn returns the ids that the cloud names in an error, such as that of the network that is full.
func IDsIn(err error) []string {
	var apiError *APIError
	if !errors.As(err, &apiError) {
		return nil
	}
	return anID.FindAllString(apiError.Message, -1)
}

// reachOf returns how far the error goes.
func reachOf(class Class, message string) Reach {
	plain := withoutMarks(message)
	row, _ := lo.Find(reachRules, func(r reachRule) bool { return r.class == class && r.pattern.MatchString(plain) })
	return row.reach
}

// ReachOf returns how far a want of room, quota or money goes; ReachOffering for an error of another kind.
func ReachOf(err error) Reach {
	var apiError *APIError
	if !errors.As(err, &apiError) {
		return ReachOffering
	}
	return apiError.Reach
}
