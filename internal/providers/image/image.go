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

// Package image finds the image that new servers of a NodeClass boot.
package image

import (
	"context"
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Image is a resolved image.
type Image struct {
	// ID is the image's id.
	ID string
	// Name is its name, for example "bke v1.35.4 ubuntu".
	Name string
	// KubernetesVersion is the version that a BKE worker image runs, for example v1.35.4; empty for other images.
	KubernetesVersion string
	// Type is image or snapshot.
	Type v1alpha1.ImageType
	// MinDiskGiB is the least root disk that it fits on, in GiB; 0 where the cloud does not say, as of public images and
	// BKE worker images.
	MinDiskGiB int
	// PublicOS reports whether it is a plain operating system image, which has no BKE script.
	PublicOS bool
	// Flatcar reports whether it is a BKE worker image with Flatcar, which takes no other script than BKE's.
	Flatcar bool
	// Note is what the user may want to know of it nevertheless; mostly empty.
	Note string
}

// NotFoundError says that the cloud answered and has no such image.
type NotFoundError struct {
	// Field is the path of the field that asked, for example spec.imageSelectorTerms[0].alias.
	Field string
	// Value is what was asked for.
	Value string
	// Available is what there is instead, shortened.
	Available []string
	// Remedy is what to do about it where a list of names does not say it; may be empty.
	Remedy string
}

// Error names the field, the value, what is available and the remedy.
func (e *NotFoundError) Error() string {
	message := fmt.Sprintf("%s: no image matches %q; available: %v", e.Field, e.Value, e.Available)
	if e.Remedy != "" {
		message += "; " + e.Remedy
	}
	return message
}

// Provider finds images.
type Provider interface {
	// Resolve returns the image of the first selector term that matches. A BKE alias stays with what the NodeClass's status
	// says while the catalog offers nothing newer, until several of its reads agree. A *NotFoundError says that none does; any
	// other error that it could not be found out, which never means that an image is gone.
	Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Image, error)
}
