// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProviderConfigName is the only name that a ProviderConfig may have.
const ProviderConfigName = "default"

// Conditions of a ProviderConfig. Ready is true when all of them are.
const (
	// ConditionTypeCredentialsReady reports whether the credentials could be read and BizFly Cloud accepts them.
	ConditionTypeCredentialsReady = "CredentialsReady"
	// ConditionTypeEndpointReachable reports whether BizFly Cloud answers.
	ConditionTypeEndpointReachable = "EndpointReachable"
	// ConditionTypeScopePinned reports whether the configuration is for the endpoint, region and project of this cluster's
	// servers.
	ConditionTypeScopePinned = "ScopePinned"
	// ConditionTypeTuningReady reports whether the tuning ConfigMap could be read; its message names the keys that are
	// ignored.
	ConditionTypeTuningReady = "TuningReady"
)

// Conditions of a ProviderConfig on which Ready does not depend.
const (
	// ConditionTypeControlPlaneRecognized is False while the cluster has none of the API servers that are recorded: it may
	// be a clone: no server is launched, deleted or rebooted, and garbage collection only reports.
	ConditionTypeControlPlaneRecognized = "ControlPlaneRecognized"
	// ConditionTypeWithinSpendingLimits is False while MAX_SERVERS or MAX_VND_PER_HOUR holds launches back.
	ConditionTypeWithinSpendingLimits = "WithinSpendingLimits"
	// ConditionTypeAccountAccepted is False while the account itself says that it is unpaid (AccountUnpaid: servers may be
	// stopped, and stopped servers are not deleted), and while BizFly Cloud rejects launches for the account's balance or
	// its credentials: all launches pause then, and one is tried after each pause.
	ConditionTypeAccountAccepted = "AccountAccepted"
)

// ProviderConfigSpec is how the controller reaches BizFly Cloud and with which credentials. What is not set here is
// taken from the controller's environment, and what is not set there has a default.
type ProviderConfigSpec struct {
	// Endpoint is the https address of the API, for example https://manage.bizflycloud.vn/api. It cannot be changed while
	// NodeClaims exist.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:message="endpoint must be an https address such as https://manage.bizflycloud.vn/api (http only where BIZFLY_CLOUD_ALLOW_HTTP permits it)",rule="isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Region is the region. It cannot be changed while NodeClaims exist.
	// +kubebuilder:validation:Enum={HN,HCM,VC-HaNoi}
	// +optional
	Region string `json:"region,omitempty"`
	// ProjectID is the project; empty: the credential's own. It cannot be changed while NodeClaims exist; its removal
	// takes effect when none does.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:message="projectID must be made of letters, digits and -",rule="self.matches('^[A-Za-z0-9-]*$')"
	// +optional
	ProjectID string `json:"projectID,omitempty"`
	// SecretRef is the Secret with the credentials, in the controller's namespace: application_credential_id and
	// application_credential_secret, or email and password. Without it, the controller's environment has them.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// CABundle is PEM that is trusted beside the system's roots.
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:message="caBundle must hold PEM certificates (-----BEGIN CERTIFICATE-----)",rule="self.contains('-----BEGIN CERTIFICATE-----')"
	// +optional
	CABundle string `json:"caBundle,omitempty"`
	// RateLimits limit the requests to BizFly Cloud by class.
	// +optional
	RateLimits *RateLimits `json:"rateLimits,omitempty"`
	// TuningConfigMapRef is the ConfigMap with the tuning keys, in the controller's namespace:
	// docs/reference/options.md#tuning-keys.
	// +optional
	TuningConfigMapRef *ConfigMapReference `json:"tuningConfigMapRef,omitempty"`
}

// ConfigMapReference names a ConfigMap in the controller's own namespace.
type ConfigMapReference struct {
	// Name is the one that the controller's Role grants (TUNING_CONFIGMAP_NAME), which is the default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
}

// SecretReference names a Secret in the controller's own namespace.
type SecretReference struct {
	// Name is the one that the controller's Role grants (CREDENTIALS_SECRET_NAME), which is the default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
}

// RateLimits are the limits of each class of requests.
type RateLimits struct {
	// Delete is for deletions.
	// +optional
	Delete *RateLimit `json:"delete,omitempty"`
	// Read is for requests that change nothing.
	// +optional
	Read *RateLimit `json:"read,omitempty"`
	// Create is for create requests.
	// +optional
	Create *RateLimit `json:"create,omitempty"`
}

// RateLimit is the limit of one class of requests.
type RateLimit struct {
	// QPS is requests per second on average.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	QPS int32 `json:"qps,omitempty"`
	// Burst is requests at once after an idle time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Burst int32 `json:"burst,omitempty"`
	// Concurrency is requests in flight.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
}

// ProviderConfigStatus is the state of the active configuration.
type ProviderConfigStatus struct {
	// Reason is why it is not ready; empty while it is.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Scope is where this cluster's servers are, which the annotation karpenter.bizflycloud.vn/scope records at the first
	// login. A configuration of another scope is rejected while a NodeClaim exists.
	// +optional
	Scope *ScopeStatus `json:"scope,omitempty"`
	// Zones are the zones of the region.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Zones []string `json:"zones,omitempty"`
	// LastLoginTime is when BizFly Cloud accepted the active configuration.
	// +optional
	LastLoginTime *metav1.Time `json:"lastLoginTime,omitempty"`
	// Tuning are the active keys of the tuning ConfigMap, also after a restart. A key that becomes invalid or is missing
	// with the ConfigMap keeps its value.
	// +kubebuilder:validation:MaxProperties=128
	// +optional
	Tuning map[string]string `json:"tuning,omitempty"`
	// RequestForms are the forms of fields in which create requests succeeded: volumeType is Name, Type or Medium;
	// flavor.nix, for example, is Full or Short.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	RequestForms map[string]string `json:"requestForms,omitempty"`
	// Conditions report what is right and what is wrong, and what to do about it.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// MaxTuningValueBytes is the longest value of a key of the tuning ConfigMap, since the status holds the active ones.
const MaxTuningValueBytes = 65536

// ScopeStatus is the endpoint, region and project that the cluster's servers are in.
type ScopeStatus struct {
	// Host is the host, and port if any, of the endpoint.
	// +kubebuilder:validation:MaxLength=260
	Host string `json:"host"`
	// Region is its long name, for example HaNoi.
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region"`
	// ProjectID is the project of the credentials.
	// +kubebuilder:validation:MaxLength=64
	ProjectID string `json:"projectID"`
}

// ProviderConfig is how the controller reaches BizFly Cloud. There is one, named default.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=providerconfigs,scope=Cluster,categories={karpenter},shortName={bfpc}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the configuration is active"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.reason",description="Why not; empty while it is ready"
// +kubebuilder:printcolumn:name="Account",type="string",JSONPath=".status.conditions[?(@.type==\"AccountAccepted\")].status",description="False while all launches pause for the account's balance or credentials"
// +kubebuilder:printcolumn:name="Region",type="string",JSONPath=".status.scope.region",description="Where the servers are"
// +kubebuilder:printcolumn:name="Project",type="string",JSONPath=".status.scope.projectID",description="The project of the servers"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="The age of the object"
// +kubebuilder:validation:XValidation:message="there is one ProviderConfig, named default: put what you need there",rule="self.metadata.name == 'default'"
type ProviderConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the configuration.
	// +optional
	Spec ProviderConfigSpec `json:"spec,omitempty"`
	// Status is the state of the active configuration.
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

// RecordedScope returns where this cluster's servers are, nil before the first login. The status has it too, for an
// annotation that was lost or cannot be read.
func (in *ProviderConfig) RecordedScope() *ScopeStatus {
	recorded := ScopeStatus{}
	if json.Unmarshal([]byte(in.Annotations[AnnotationScope]), &recorded) == nil && recorded != (ScopeStatus{}) {
		return &recorded
	}
	return in.Status.Scope
}

// RecordScope records where this cluster's servers are.
func (in *ProviderConfig) RecordScope(scope ScopeStatus) {
	in.Annotations = lo.Assign(in.Annotations, map[string]string{AnnotationScope: string(lo.Must(json.Marshal(scope)))})
	in.Status.Scope = &scope
}

// RecordedAPIServers returns the addresses of the API servers, none before the first login.
func (in *ProviderConfig) RecordedAPIServers() []string {
	return lo.Compact(strings.Split(in.Annotations[AnnotationAPIServers], ","))
}

// RecordAPIServers records the addresses of the API servers.
func (in *ProviderConfig) RecordAPIServers(addresses []string) {
	in.Annotations = lo.Assign(in.Annotations, map[string]string{AnnotationAPIServers: strings.Join(addresses, ",")})
}
