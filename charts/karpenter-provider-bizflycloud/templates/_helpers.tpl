{{/* The app.kubernetes.io/name of everything. No value changes it, nor the alias of a dependency, which .Chart.Name would be: kubectl bizfly, the
runbooks and the pages find the controller by it. */}}
{{- define "karpenter.name" -}}
karpenter-provider-bizflycloud
{{- end }}

{{/* The name of the objects: the release's, and which Karpenter it is, because others are often released as "karpenter", too. A Service's may have no
dot. */}}
{{- define "karpenter.fullname" -}}
{{- $name := default "bizflycloud" .Values.nameOverride }}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $own .Values.fullnameOverride | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of the pods, and of an object: (list context more-labels). Flux rejects a label that stands twice: those of the values replace
ours, but neither helm.sh/chart nor those that select the pods. Pods lack helm.sh/chart: Flux adds the commit to the chart's version, and none should restart the
controller. */}}
{{- define "karpenter.labels" -}}
{{- $ := index . 0 }}
{{- $ours := dict "app.kubernetes.io/version" $.Chart.AppVersion "app.kubernetes.io/part-of" "karpenter" "app.kubernetes.io/managed-by" $.Release.Service }}
{{- $selector := include "karpenter.selectorLabels" $ | fromYaml }}
{{- mergeOverwrite $ours ($.Values.additionalLabels | default dict) ((index . 1) | default dict) $selector | toYaml }}
{{- end }}

{{/* The metadata of an object: (list context name namespaced more-labels more-annotations). */}}
{{- define "karpenter.metadata" -}}
{{- $ := index . 0 -}}
name: {{ index . 1 }}
{{- if index . 2 }}
namespace: {{ $.Release.Namespace }}
{{- end }}
labels:
  {{- $chart := printf "%s-%s" (include "karpenter.name" $) $.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  {{- include "karpenter.labels" (list $ (merge (dict "helm.sh/chart" $chart) ((index . 3) | default dict))) | nindent 2 }}
{{- with mergeOverwrite (deepCopy ($.Values.additionalAnnotations | default dict)) ((index . 4) | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The metadata of an object in another namespace, and the binding of the Role of that name: (list context namespace name). */}}
{{- define "karpenter.metadataIn" -}}
{{- include "karpenter.metadata" (list (index . 0) (index . 2) false nil nil) }}
namespace: {{ index . 1 }}
{{- end }}
{{- define "karpenter.roleBindingIn" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "karpenter.metadataIn" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "karpenter.serviceAccountName" (index . 0) }}
    namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{- define "karpenter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "karpenter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is empty: name the ServiceAccount of the controller, or set serviceAccount.create=true; every pod may have that called default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The image. A release writes the digest of its image beside appVersion: not into the values, where helm upgrade --reuse-values would
keep that of the version before, and where a tag of the user's own would have no effect. */}}
{{- define "karpenter.image" -}}
{{- $image := .Values.controller.image -}}
{{- $pinned := ternary (index (.Chart.Annotations | default dict) "karpenter.bizflycloud.vn/image-digest") "" (not $image.tag) -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}{{ with default $pinned $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The one Secret and the one ConfigMap that the Role grants. */}}
{{- define "karpenter.secretName" -}}
{{- default (include "karpenter.fullname" .) .Values.credentials.existingSecret }}
{{- end }}
{{- define "karpenter.tuningName" -}}
{{- default (printf "%s-tuning" (include "karpenter.fullname" .)) .Values.tuning.existingConfigMap }}
{{- end }}
{{/* The ProviderConfig outlives a release, and Helm removes no reference that another release has set: it names a ConfigMap without keys then. */}}
{{- define "karpenter.keptTuning" -}}
{{- if and .Values.providerConfig.create (not .Values.tuning.data) (not .Values.tuning.existingConfigMap) }}
{{- $kept := lookup "karpenter.bizflycloud.vn/v1alpha1" "ProviderConfig" "" "default" }}
{{- if dig "spec" "tuningConfigMapRef" "" $kept }}true{{ end }}
{{- end }}
{{- end }}

{{/* Core panics over a gate without a value: each is written down, whatever became of the values. */}}
{{- define "karpenter.featureGates" -}}
{{- $gates := .Values.settings.featureGates | default dict }}
{{- $all := list }}
{{- range list "NodeRepair" "ReservedCapacity" "SpotToSpotConsolidation" "NodeOverlay" "StaticCapacity" "CapacityBuffer"
  "TerminateFirstDrift" "TerminateFirstRepair" "PodDeletionCostManagement" }}
{{- $value := get $gates (untitle .) }}
{{- $all = append $all (printf "%s=%t" . (ternary $value (eq . "ReservedCapacity") (kindIs "bool" $value))) }}
{{- end }}
{{- join "," $all }}
{{- end }}

{{/* Affinity and spread without a labelSelector mean the controller's own pods. */}}
{{- define "karpenter.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- $selector := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- with get $affinity $kind }}
{{- range .requiredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey . "labelSelector") }}{{- $_ := set . "labelSelector" $selector }}{{- end }}
{{- end }}
{{- range .preferredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey .podAffinityTerm "labelSelector") }}{{- $_ := set .podAffinityTerm "labelSelector" $selector }}{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}
{{- define "karpenter.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $constraints = append $constraints (ternary . (set (deepCopy .) "labelSelector" $selector) (hasKey . "labelSelector")) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}

{{/* Values of the AWS provider's chart that have no meaning here, with what does it instead: NOTES.txt names those that are set. */}}
{{- define "karpenter.awsValues" -}}
{{- $instead := dict
  "interruptionQueue" "remove it; node repair polls, with settings.featureGates.nodeRepair"
  "isolatedVPC" "remove it; prices come from a table of the chart's controller"
  "reservedENIs" "remove it; pods have no network interfaces of the cloud"
  "eksControlPlane" "remove it; bke.discoverFromPool is for BizFly Kubernetes Engine"
  "clusterCABundle" "remove it; the controller reads the cluster's authority"
  "disableDryRun" "remove it; NodeClasses are checked without a dry run"
  "awsFeatureGates" "remove it; the gates are settings.featureGates"
  "enableZonalShift" "use tuning.data.closedZones"
  "amiRefreshInterval" "use tuning.data.catalogInterval, for BKE's worker images"
  "subnetRefreshInterval" "remove it; networks are looked up every five minutes"
  "webhook" "remove it; there is no webhook" }}
{{- range $name, $remedy := $instead }}
{{- range $prefix, $values := dict "settings." $.Values.settings "" $.Values }}
{{- if not (has (toString (get $values $name)) (list "" "0" "false" "map[]" "<nil>" "map[enabled:false]")) }}
{{ $prefix }}{{ $name }}: {{ $remedy }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The seconds of a duration, which the schema has checked. */}}
{{- define "karpenter.seconds" -}}
{{- $seconds := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}
{{- $unit := get (dict "ns" 1e-9 "us" 1e-6 "ms" 1e-3 "s" 1.0 "m" 60.0 "h" 3600.0) (regexFind "[a-z]+" .) }}
{{- $seconds = addf $seconds (mulf (regexFind "[0-9.]+" .) $unit) }}
{{- end }}
{{- $seconds }}
{{- end }}

{{/* What the schema cannot say: each message names the value and the remedy. */}}
{{- define "karpenter.validate" -}}
{{- $v := .Values }}
{{- if not $v.settings.clusterName }}
{{- fail "settings.clusterName is empty: set it to the name of this cluster, which is written on every server" }}
{{- end }}
{{- if gt (len $v.settings.clusterName) 255 }}
{{- fail (printf "settings.clusterName has %d bytes: use at most 255, which is what a server's metadata holds (letters with accents are two or three)" (len $v.settings.clusterName)) }}
{{- end }}
{{- $launch := default "3m" $v.settings.launchTimeout }}
{{- $timeout := include "karpenter.seconds" $launch | float64 }}
{{- if or (lt $timeout 10.0) (gt $timeout 600.0) }}
{{- fail (printf "settings.launchTimeout is %s: use 10s to 10m" $launch) }}
{{- end }}
{{- $grace := default "5m" $v.settings.garbageCollectionGrace }}
{{- $age := include "karpenter.seconds" $grace | float64 }}
{{- if or (le $age $timeout) (gt $age 86400.0) }}
{{- fail (printf "settings.garbageCollectionGrace is %s: use more than settings.launchTimeout, which is %s, and at most 24h" $grace $launch) }}
{{- end }}
{{- if not (has (toString (get $v.settings "vmMemoryOverheadPercent")) (list "" "0.075" "<nil>")) }}
{{- fail "settings.vmMemoryOverheadPercent has no effect here: set tuning.data.vmMemoryOverheadPercent, which can change while the controller runs" }}
{{- end }}
{{- if hasPrefix "public.ecr.aws/karpenter/" $v.controller.image.repository }}
{{- fail (printf "controller.image.repository is %s, the controller of the AWS provider: remove controller.image from the values, or name a mirror of ours" $v.controller.image.repository) }}
{{- end }}
{{- if not $v.cloud.region }}
{{- fail "cloud.region is empty: set it to HN, HCM or VC-HaNoi" }}
{{- end }}
{{- $c := $v.credentials }}
{{- if $c.existingSecret }}
{{- if or $c.applicationCredentialID $c.applicationCredentialSecret $c.email $c.password $v.bke.clusterToken }}
{{- fail "credentials.existingSecret is set, and so is a credential or bke.clusterToken: put it into that Secret and remove it from the values" }}
{{- end }}
{{- else if eq $c.method "password" }}
{{- if not (and $c.email $c.password) }}
{{- fail "credentials.email or credentials.password is empty: set both, or credentials.existingSecret to a Secret with the keys email and password" }}
{{- end }}
{{- else if not (and $c.applicationCredentialID $c.applicationCredentialSecret) }}
{{- fail "credentials.applicationCredentialID or credentials.applicationCredentialSecret is empty: set both, or credentials.existingSecret to a Secret with the keys application_credential_id and application_credential_secret" }}
{{- end }}
{{- if has (include "karpenter.secretName" .) $v.userDataSecrets }}
{{- fail (printf "userDataSecrets has %s, the Secret with the credentials of the cloud, which servers must not get: keep user data in a Secret of its own" (include "karpenter.secretName" .)) }}
{{- end }}
{{- if and $v.bke.clusterID (not $v.bke.discoverFromPool) (not $c.existingSecret) (not $v.bke.clusterToken) }}
{{- fail "bke.clusterToken is empty although bke.clusterID is set: set bke.discoverFromPool=true, or set it, or credentials.existingSecret to a Secret that also has the key bke_cluster_token" }}
{{- end }}
{{- if and (not $v.providerConfig.create) (or $v.cloud.caBundle $v.cloud.rateLimits) }}
{{- fail "providerConfig.create is false, and cloud.caBundle or cloud.rateLimits is set, which only the ProviderConfig of the chart has: write spec.caBundle and spec.rateLimits in yours and remove the values, or set providerConfig.create=true" }}
{{- end }}
{{- if and $v.tuning.existingConfigMap $v.tuning.data }}
{{- fail "tuning.existingConfigMap and tuning.data are both set: remove one of them" }}
{{- end }}
{{- if and $v.settings.enableProfiling (not (and $v.networkPolicy.enabled $v.networkPolicy.metricsFrom)) }}
{{- fail "settings.enableProfiling is true, and every pod could read the controller's memory and stop it at the metrics port: set networkPolicy.enabled=true and networkPolicy.metricsFrom to the peers that may (kubectl port-forward needs none), or settings.enableProfiling=false" }}
{{- end }}
{{- if and $v.hostNetwork $v.networkPolicy.enabled }}
{{- fail "hostNetwork and networkPolicy.enabled are both true, and a NetworkPolicy has no effect on pods in the node's network: set one of them to false" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled $v.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled are both true, and every metric would be scraped twice: set one of them to false" }}
{{- end }}
{{- if and (not $v.settings.ignoreDRARequests) (semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "settings.ignoreDRARequests is false, and Kubernetes %s has no resource.k8s.io/v1, which came with 1.34: set it to true, or upgrade the cluster (without a cluster, name its version by --kube-version)" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}
