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

package options

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/multierr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Validate names everything that is wrong, each with the variable, the value (never a secret) and the remedy. Endpoint,
// region and credentials are validated by the client that uses them, wherever they come from.
func (o *Options) Validate() error {
	return multierr.Combine(o.validateCluster(), o.validateTimes(), o.Bootstrap.validate(o.CredentialsSecretName))
}

func (o *Options) validateCluster() error {
	var errs error
	if o.ClusterName == "" {
		errs = multierr.Append(errs, errors.New("CLUSTER_NAME is not set: give the cluster a name, it is written on every server"))
	} else if len(o.ClusterName) > 255 {
		errs = multierr.Append(errs, fmt.Errorf("CLUSTER_NAME has %d characters: use at most 255", len(o.ClusterName)))
	}
	// The node's labels are written with the server's id: one that the API server refuses would keep that from ever being
	// written down, so that every server would be ordered, paid for and lost.
	if problems := validation.IsValidLabelValue(o.RegionLabel); len(problems) > 0 {
		errs = multierr.Append(errs, fmt.Errorf("BIZFLY_CLOUD_REGION_LABEL=%q cannot be the value of a label: %s", o.RegionLabel, strings.Join(problems, "; ")))
	}
	// NaN is in no order with anything.
	if math.IsNaN(o.MemoryOverheadPercent) || o.MemoryOverheadPercent < 0 || o.MemoryOverheadPercent >= 50 {
		errs = multierr.Append(errs, fmt.Errorf("VM_MEMORY_OVERHEAD_PERCENT=%g is out of bounds: use 0 to 50, for example 7.5", o.MemoryOverheadPercent))
	}
	return errs
}

func (o *Options) validateTimes() error {
	var errs error
	for _, bound := range []struct {
		name     string
		value    time.Duration
		min, max time.Duration
	}{
		{"LAUNCH_TIMEOUT", o.LaunchTimeout, 10 * time.Second, time.Hour},
		{"SERVER_ID_WAIT", o.ServerIDWait, time.Second, 30 * time.Second},
		{"VISIBILITY_WINDOW", o.VisibilityWindow, 5 * time.Second, time.Hour},
		{"CATALOG_INTERVAL", o.CatalogInterval, 10 * time.Second, 24 * time.Hour},
		{"GARBAGE_COLLECTION_INTERVAL", o.GarbageCollectionInterval, time.Second, time.Hour},
		{"GARBAGE_COLLECTION_GRACE", o.GarbageCollectionGrace, 10 * time.Second, 24 * time.Hour},
		{"UNAVAILABLE_OFFERING_TTL", o.UnavailableOfferingTTL, time.Second, 24 * time.Hour},
	} {
		if bound.value < bound.min || bound.value > bound.max {
			errs = multierr.Append(errs, fmt.Errorf("%s=%s is out of bounds: use %s to %s", bound.name, bound.value, bound.min, bound.max))
		}
	}
	if o.GarbageCollectionGrace <= o.LaunchTimeout {
		errs = multierr.Append(errs, fmt.Errorf("GARBAGE_COLLECTION_GRACE=%s must exceed LAUNCH_TIMEOUT=%s, or servers that are being launched would be deleted", o.GarbageCollectionGrace, o.LaunchTimeout))
	}
	return errs
}

// withDefaultFloat reads a float from the environment; one that does not parse is out of every bound, so that Validate
// names the variable instead of a default being used in silence.
func withDefaultFloat(name string, def float64) float64 {
	raw, set := os.LookupEnv(name)
	if !set || raw == "" {
		return def
	}
	value, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return -1
	}
	return value
}
