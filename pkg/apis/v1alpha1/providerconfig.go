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

package v1alpha1

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProviderConfigName is the name of the one ProviderConfig that is used; others are ignored and say so.
const ProviderConfigName = "default"

// Conditions of a ProviderConfig. Ready is true when all of them are.
const (
	// ConditionTypeCredentialsReady says whether the credentials could be read and the cloud accepts them.
	ConditionTypeCredentialsReady = "CredentialsReady"
	// ConditionTypeEndpointReachable says whether the cloud answers.
	ConditionTypeEndpointReachable = "EndpointReachable"
	// ConditionTypeScopePinned says whether the configuration in force talks about the endpoint, region and project
	// that this cluster's servers are in.
	ConditionTypeScopePinned = "ScopePinned"
	// ConditionTypeTuningReady says whether the tuning ConfigMap could be read; its message names what in it is ignored.
	ConditionTypeTuningReady = "TuningReady"
)

// ProviderConfigSpec says where BizFly Cloud is and who asks. What is not set here is taken from the controller's
// environment, and what is not set there has a default.
type ProviderConfigSpec struct {
	// Endpoint is the address of the API, for example https://manage.bizflycloud.vn/api. It cannot be changed while
	// NodeClaims exist: at another endpoint their servers would look gone.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:message="endpoint must be an https address such as https://manage.bizflycloud.vn/api (http only where BIZFLY_CLOUD_ALLOW_HTTP permits it)",rule="isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Region is the region. It cannot be changed while NodeClaims exist.
	// +kubebuilder:validation:Enum={HN,HaNoi,HCM,HoChiMinh,VC-HaNoi}
	// +optional
	Region string `json:"region,omitempty"`
	// ProjectID is the project; when it is empty, the credential's own. It cannot be changed while NodeClaims exist.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]*$`
	// +optional
	ProjectID string `json:"projectID,omitempty"`
	// SecretRef is the Secret in the controller's own namespace that holds the credentials: application_credential_id
	// and application_credential_secret, or email and password.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// CABundle is PEM that is trusted in addition to the system's roots.
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:message="caBundle must hold PEM certificates (-----BEGIN CERTIFICATE-----)",rule="self.contains('-----BEGIN CERTIFICATE-----')"
	// +optional
	CABundle string `json:"caBundle,omitempty"`
	// RateLimits bound the requests to the cloud by class, so that a burst of one does not starve another.
	// +optional
	RateLimits *RateLimits `json:"rateLimits,omitempty"`
	// TuningConfigMapRef is the ConfigMap in the controller's own namespace that changes intervals, times, prices, flavors
	// and error patterns while the controller runs; docs/reference/tuning.md lists its keys.
	// +optional
	TuningConfigMapRef *ConfigMapReference `json:"tuningConfigMapRef,omitempty"`
}

// ConfigMapReference names a ConfigMap in the controller's own namespace.
type ConfigMapReference struct {
	// Name is the name of the ConfigMap. It must be the one that the controller's Role grants.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SecretReference names a Secret in the controller's own namespace.
type SecretReference struct {
	// Name is the name of the Secret. It must be the one that the controller's Role grants.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RateLimits are the shares of each class of calls.
type RateLimits struct {
	// Delete is for deletions.
	// +optional
	Delete *RateLimit `json:"delete,omitempty"`
	// Read is for everything that changes nothing.
	// +optional
	Read *RateLimit `json:"read,omitempty"`
	// Create is for orders.
	// +optional
	Create *RateLimit `json:"create,omitempty"`
}

// RateLimit is the share of one class of calls.
type RateLimit struct {
	// QPS is how many requests per second are sent on average.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	QPS int32 `json:"qps,omitempty"`
	// Burst is how many may be sent at once after a quiet time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Burst int32 `json:"burst,omitempty"`
	// Concurrency is how many may be under way at the same time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
}

// ProviderConfigStatus is what came of it.
type ProviderConfigStatus struct {
	// Scope is where this cluster's servers are, recorded at the first login. A configuration of another scope is
	// refused while any NodeClaim exists, because everything would look gone there.
	// +optional
	Scope *ScopeStatus `json:"scope,omitempty"`
	// Zones are the zones of the region.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// LastLoginTime is when the cloud last accepted the credentials of a changed configuration.
	// +optional
	LastLoginTime *metav1.Time `json:"lastLoginTime,omitempty"`
	// Tuning are the keys of the tuning ConfigMap that are active, as they were given. A key that becomes invalid, and all
	// keys while the ConfigMap is missing, keep these values, also after a restart.
	// +optional
	Tuning map[string]string `json:"tuning,omitempty"`
	// Conditions say what is well and what is not, and what to do about it.
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// ScopeStatus is a place in the cloud within which "not found" means gone.
type ScopeStatus struct {
	// Host is the host, and the port where it has one, of the endpoint.
	Host string `json:"host"`
	// Region is the region's long name, for example HaNoi.
	Region string `json:"region"`
	// ProjectID is the project of the token that the cloud gave.
	ProjectID string `json:"projectID"`
}

// ProviderConfig says where BizFly Cloud is and who asks. There is one, named default.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=providerconfigs,scope=Cluster,categories={karpenter},shortName={bfpc}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the configuration is in force"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].reason",description="Why not"
// +kubebuilder:printcolumn:name="Region",type="string",JSONPath=".status.scope.region",description="Where the servers are"
// +kubebuilder:printcolumn:name="Project",type="string",JSONPath=".status.scope.projectID",description="Whose servers they are"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Since when it exists"
type ProviderConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec ProviderConfigSpec `json:"spec,omitempty"`
	// Status is what came of it.
	// +optional
	Status ProviderConfigStatus `json:"status,omitempty"`
}

// ProviderConfigList is a list of ProviderConfig.
// +kubebuilder:object:root=true
type ProviderConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects.
	Items []ProviderConfig `json:"items"`
}

// GetConditions returns the conditions, for operatorpkg.
func (in *ProviderConfig) GetConditions() []status.Condition { return in.Status.Conditions }

// SetConditions sets the conditions, for operatorpkg.
func (in *ProviderConfig) SetConditions(conditions []status.Condition) {
	in.Status.Conditions = conditions
}

// StatusConditions returns the set of conditions whose conjunction is Ready.
func (in *ProviderConfig) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(
		ConditionTypeCredentialsReady,
		ConditionTypeEndpointReachable,
		ConditionTypeScopePinned,
		ConditionTypeTuningReady,
	).For(in, opts...)
}
