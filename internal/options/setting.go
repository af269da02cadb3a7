// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	"go.uber.org/multierr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
)

// Setting is one row of the table.
type Setting struct {
	// Flag, Variable and Key name it on the command line, in the environment, and in the tuning ConfigMap, where it
	// changes while the controller runs. One that is empty cannot be given there.
	Flag, Variable, Key string
	// Secret is true for what no message may repeat.
	Secret bool
	// Unit and Bounds describe what may be given; empty for plain text.
	Unit, Bounds string
	// Default is the text of the default.
	Default string
	// Doc says what it does, and why it has its default.
	Doc string

	// field returns a pointer to the value.
	field func(*Options) any
	// document parses what is more than a number or a text.
	document func(o *Options, raw string) error
	// check returns what is wrong with the value and what to use instead.
	check func(*Options) error
}

// Table returns all settings in the order in which the reference lists them.
func Table() []*Setting { return slices.Clone(table) }

// Apply sets the value from text if it is valid.
func (s *Setting) Apply(o *Options, raw string) error {
	next := *o
	err := s.assign(&next, raw)
	if err == nil && s.check != nil {
		err = s.check(&next)
	}
	if err == nil {
		*o = next
	}
	return err
}

// isText reports whether the empty text is a value.
func (s *Setting) isText() bool { _, ok := s.field(&Options{}).(*string); return ok }

// problem names the variable, the value unless it is secret, and the remedy.
func (s *Setting) problem(value string, err error) error {
	if s.Secret {
		return fmt.Errorf("%s: %w", s.Variable, err)
	}
	return fmt.Errorf("%s=%q: %w", s.Variable, value, err)
}

// assign sets the value from text of its type, in bounds or not.
func (s *Setting) assign(o *Options, raw string) error {
	if s.document != nil {
		return s.document(o, raw)
	}
	switch field := s.field(o).(type) {
	case *string:
		*field = raw
		if s.Secret {
			*field = strings.TrimRight(raw, "\r\n") // a file ends with a line break
		}
	case *bool:
		value, err := strconv.ParseBool(raw)
		if err != nil {
			return errors.New("use true or false")
		}
		*field = value
	case *float64:
		value, err := strconv.ParseFloat(strings.TrimSpace(raw), 64)
		if err != nil {
			return fmt.Errorf("use a number: %s, for example %s", s.Bounds, s.Default)
		}
		*field = value
	case *time.Duration:
		value, err := time.ParseDuration(strings.TrimSpace(raw))
		if err != nil {
			return fmt.Errorf("use a duration: %s, for example %s", s.Bounds, s.Default)
		}
		*field = value
	case *[]string:
		*field = lo.Uniq(lo.Compact(lo.Map(strings.Split(raw, ","), func(item string, _ int) string {
			return strings.TrimSpace(item)
		})))
	}
	return nil
}

func (s *Setting) format(o *Options) string {
	switch field := s.field(o).(type) {
	case *time.Duration:
		return short(*field)
	case *[]string:
		return strings.Join(*field, ",")
	default:
		return fmt.Sprint(reflect.ValueOf(field).Elem())
	}
}

// short writes a duration without parts that are zero.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// plain is a setting that any value of its type suits.
func plain[T any](name, variable, value, doc string, field func(*Options) *T) *Setting {
	return &Setting{Flag: name, Variable: variable, Default: value, Doc: doc, field: func(o *Options) any {
		return field(o)
	}}
}

func secret(variable, doc string, field func(*Options) *string) *Setting {
	s := plain("", variable, "", doc, field)
	s.Secret = true
	return s
}

func list(name, variable, value, doc string, field func(*Options) *[]string) *Setting {
	s := plain(name, variable, value, doc, field)
	s.Unit = "list, separated by commas"
	return s
}

// names is a tuning key that lists values of a label of nodes, such as their zone.
func names(key, kind, bounds, doc string, field func(*Options) *[]string) *Setting {
	s := list("", "", "", doc, field)
	s.Key, s.Bounds = key, bounds
	s.check = func(o *Options) error {
		for _, name := range *field(o) {
			if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
				return fmt.Errorf("%q is no %s: %s", name, kind, strings.Join(problems, "; "))
			}
		}
		return nil
	}
	return s
}

func duration(name, variable, key, value string, least, most time.Duration, doc string,
	field func(*Options) *time.Duration) *Setting {
	bounds := fmt.Sprintf("%s to %s", short(least), short(most))
	s := plain(name, variable, value, doc, field)
	s.Key, s.Unit, s.Bounds = key, "duration", bounds
	s.check = func(o *Options) error {
		if *field(o) < least || *field(o) > most {
			return fmt.Errorf("use a duration: %s, for example %s", bounds, value)
		}
		return nil
	}
	return s
}

// limit is a whole number of a unit; 0 is none. It is kept as the number that prices are.
func limit(name, variable, unit, doc string, field func(*Options) *float64) *Setting {
	s := plain(name, variable, "0", doc, field)
	s.Unit, s.Bounds = unit, "0 or a whole number"
	s.check = func(o *Options) error {
		if value := *field(o); !(value >= 0 && value == math.Trunc(value) && value <= maxLimit) {
			return fmt.Errorf("use 0 for no limit, or a whole number up to %d", maxLimit)
		}
		return nil
	}
	return s
}

// checked adds a check to a setting.
func checked(s *Setting, check func(*Options) error) *Setting {
	before := s.check
	s.check = func(o *Options) error {
		if before != nil {
			if err := before(o); err != nil {
				return err
			}
		}
		return check(o)
	}
	return s
}

// checkRegionLabel requires a label value. The labels of a node are written together with the id of its server: one
// that the API server rejects would lose every server that was launched.
func checkRegionLabel(o *Options) error {
	if problems := validation.IsValidLabelValue(o.RegionLabel); len(problems) > 0 {
		return fmt.Errorf("use a label value: %s", strings.Join(problems, "; "))
	}
	return nil
}

// checkClusterName requires the name, which is written on every server.
func checkClusterName(o *Options) error {
	if o.ClusterName == "" || len(o.ClusterName) > 255 {
		return errors.New("use a name of 1 to 255 bytes, which is written on every server")
	}
	return nil
}

// checkAllowedHosts requires hosts, since an address would match none.
func checkAllowedHosts(o *Options) error {
	for _, host := range o.AllowedHosts {
		if _, err := path.Match(host, ""); err != nil || strings.ContainsAny(host, "/@ ") {
			return fmt.Errorf("%q is not a host or a pattern: use for example manage.bizflycloud.vn or *.manage.bizflycloud.vn",
				host)
		}
	}
	return nil
}

// checkUserDataSecrets rejects the Secret with the cloud's credentials as user data: each user who may write a
// NodeClass could read it from a server.
func checkUserDataSecrets(o *Options) error {
	var errs error
	for _, name := range o.UserDataSecretNames {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			errs = multierr.Append(errs, fmt.Errorf("%q is not the name of a Secret: %s", name, strings.Join(problems, "; ")))
		}
		if name == o.CredentialsSecretName {
			errs = multierr.Append(errs,
				fmt.Errorf("%q is the Secret with the credentials of the cloud, which servers must not get: keep templates in one "+
					"of their own", name))
		}
	}
	return errs
}

// checkJoinTokenGroups requires groups that the API server accepts in a bootstrap token, and at least one: a token
// without any may do nothing.
func checkJoinTokenGroups(o *Options) error {
	if len(o.JoinTokenGroups) == 0 {
		return errors.New("name at least one group, for example system:bootstrappers:karpenter")
	}
	for _, group := range o.JoinTokenGroups {
		if !bootstrapGroup.MatchString(group) {
			return fmt.Errorf("%q is no group of a bootstrap token: use system:bootstrappers: and small letters, digits, "+
				"colons or dashes", group)
		}
	}
	return nil
}

// bootstrapGroup is the pattern of the API server, which ignores a token with any other group.
var bootstrapGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

// checkClusterEndpoint requires host:port.
func checkClusterEndpoint(o *Options) error {
	if o.ClusterEndpoint == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(o.ClusterEndpoint)
	if _, invalid := strconv.ParseUint(port, 10, 16); err != nil || host == "" || invalid != nil {
		return errors.New("use host:port, for example 10.20.0.10:6443")
	}
	return nil
}

// checkGrace keeps garbage collection away from servers that are being launched.
func checkGrace(o *Options) error {
	if o.GarbageCollectionGrace <= o.LaunchTimeout {
		return fmt.Errorf("use more than LAUNCH_TIMEOUT, which is %s, or servers that are being launched would be deleted",
			short(o.LaunchTimeout))
	}
	return nil
}

// checkOverhead is written so that NaN does not pass.
func checkOverhead(o *Options) error {
	if inside := o.MemoryOverheadPercent >= 0 && o.MemoryOverheadPercent < 0.5; !inside {
		return errors.New("use a fraction: 0 to less than 0.5, for example 0.075")
	}
	return nil
}

// maxLimit is the largest limit of servers and of VND per hour, all of whose whole numbers a float64 holds.
const maxLimit = 1_000_000_000_000

func parsePrices(o *Options, raw string) error {
	parsed, err := pricing.ParseTable([]byte(raw))
	if err == nil {
		o.Prices = parsed
	}
	return err
}
