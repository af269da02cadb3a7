{{/* A value as text, whole numbers in digits: in a values file each number is a float, and toString writes 1e+06. */}}
{{- define "karpenter.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{/* One variable: (list name value). A value that is not given is left to the controller's default. */}}
{{- define "karpenter.variable" -}}
{{- $value := index . 1 }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- name: {{ index . 0 }}
  value: {{ include "karpenter.text" $value | quote }}
{{- end }}
{{- end }}

{{/* One variable from the credentials Secret: (list context name key optional). */}}
{{- define "karpenter.secretVariable" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ include "karpenter.secretName" (index . 0) }}
      key: {{ index . 2 }}
      {{- if index . 3 }}
      optional: true
      {{- end }}
{{- end }}

{{/* The controller's environment: everything that internal/options and core's options read. */}}
{{- define "karpenter.env" -}}
{{- $v := .Values -}}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: LEADER_ELECTION_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if dig "requests" "cpu" "" ($v.controller.resources | default dict) }}
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ $v.controller.containerName }}
      resource: requests.cpu
      divisor: 1m
{{- end }}
{{- if dig "limits" "memory" "" ($v.controller.resources | default dict) }}
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ $v.controller.containerName }}
      resource: limits.memory
      divisor: "0"
{{- end }}
{{- include "karpenter.variable" (list "CLUSTER_NAME" $v.settings.clusterName) }}
{{- include "karpenter.variable" (list "CREDENTIALS_SECRET_NAME" (include "karpenter.secretName" .)) }}
{{- include "karpenter.variable" (list "TUNING_CONFIGMAP_NAME" (include "karpenter.tuningName" .)) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_AUTH_METHOD" $v.credentials.method) }}
{{- if eq $v.credentials.method "password" }}
{{ include "karpenter.secretVariable" (list . "BIZFLY_CLOUD_EMAIL" "email" false) }}
{{ include "karpenter.secretVariable" (list . "BIZFLY_CLOUD_PASSWORD" "password" false) }}
{{- else }}
{{ include "karpenter.secretVariable" (list . "BIZFLY_CLOUD_APP_CRED_ID" "application_credential_id" false) }}
{{ include "karpenter.secretVariable" (list . "BIZFLY_CLOUD_APP_CRED_SECRET" "application_credential_secret" false) }}
{{- end }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_REGION" $v.cloud.region) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_PROJECT_ID" $v.cloud.projectID) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_API_URL" $v.cloud.endpoint) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_ALLOWED_HOSTS" (join "," $v.cloud.allowedHosts)) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_ALLOW_HTTP" $v.cloud.allowHTTP) }}
{{- include "karpenter.variable" (list "BIZFLY_CLOUD_REGION_LABEL" $v.cloud.regionLabel) }}
{{- if $v.bke.clusterID }}
{{- include "karpenter.variable" (list "BKE_CLUSTER_ID" $v.bke.clusterID) }}
{{ include "karpenter.secretVariable" (list . "BKE_CLUSTER_TOKEN" "bke_cluster_token" $v.bke.discoverFromPool) }}
{{- end }}
{{- include "karpenter.variable" (list "BKE_JOIN_ENDPOINT" (include "karpenter.bkeEndpoint" (list . $v.bke.joinEndpoint "cluster_join"))) }}
{{- include "karpenter.variable" (list "BKE_LOG_ENDPOINT" (include "karpenter.bkeEndpoint" (list . $v.bke.logEndpoint "cluster_log"))) }}
{{- include "karpenter.variable" (list "BKE_DISCOVER_FROM_POOL" $v.bke.discoverFromPool) }}
{{- include "karpenter.variable" (list "USER_DATA_SECRET_NAMES" (join "," $v.userDataSecrets)) }}
{{- include "karpenter.variable" (list "USER_DATA_CONFIGMAP_NAMES" (join "," $v.userDataConfigMaps)) }}
{{- include "karpenter.variable" (list "JOIN_TOKENS" $v.joinTokens.enabled) }}
{{- if $v.joinTokens.enabled }}
{{- include "karpenter.variable" (list "JOIN_TOKEN_GROUPS" (join "," $v.joinTokens.groups)) }}
{{- end }}
{{- include "karpenter.variable" (list "CLUSTER_ENDPOINT" (include "karpenter.clusterEndpoint" .)) }}
{{- $s := $v.settings }}
{{- include "karpenter.variable" (list "LAUNCH_TIMEOUT" $s.launchTimeout) }}
{{- include "karpenter.variable" (list "GARBAGE_COLLECTION_GRACE" $s.garbageCollectionGrace) }}
{{- include "karpenter.variable" (list "GARBAGE_COLLECTION_DRY_RUN" $s.garbageCollectionDryRun) }}
{{- /* Helm reads numbers as floats, which are written as 5e+06 from a million on. */}}
{{- include "karpenter.variable" (list "MAX_SERVERS" (int64 $s.maxServers)) }}
{{- include "karpenter.variable" (list "MAX_VND_PER_HOUR" (int64 $s.maxVNDPerHour)) }}
{{- include "karpenter.variable" (list "CREATE_PROVIDER_CONFIG" (not $v.providerConfig.create)) }}
{{- include "karpenter.variable" (list "BATCH_MAX_DURATION" $s.batchMaxDuration) }}
{{- include "karpenter.variable" (list "BATCH_IDLE_DURATION" $s.batchIdleDuration) }}
{{- include "karpenter.variable" (list "PREFERENCE_POLICY" $s.preferencePolicy) }}
{{- include "karpenter.variable" (list "MIN_VALUES_POLICY" $s.minValuesPolicy) }}
{{- include "karpenter.variable" (list "IGNORE_DRA_REQUESTS" $s.ignoreDRARequests) }}
{{- include "karpenter.variable" (list "SCHEDULER_CONFIG" $s.schedulerConfig) }}
{{- include "karpenter.variable" (list "LEGACY_NODE_REPAIR" $s.legacyNodeRepair) }}
{{- include "karpenter.variable" (list "KUBE_CLIENT_QPS" $s.kubeClientQPS) }}
{{- include "karpenter.variable" (list "KUBE_CLIENT_BURST" $s.kubeClientBurst) }}
{{- include "karpenter.variable" (list "DISABLE_CONTROLLER_WARMUP" $s.disableControllerWarmup) }}
{{- include "karpenter.variable" (list "DISABLE_CLUSTER_STATE_OBSERVABILITY" $s.disableClusterStateObservability) }}
{{- include "karpenter.variable" (list "ENABLE_PROFILING" $s.enableProfiling) }}
{{- include "karpenter.variable" (list "LEADER_ELECTION_NAME" $s.leaderElectionName) }}
{{- include "karpenter.variable" (list "FEATURE_GATES" (include "karpenter.featureGates" .)) }}
{{- include "karpenter.variable" (list "LOG_LEVEL" $v.logLevel) }}
{{- include "karpenter.variable" (list "LOG_OUTPUT_PATHS" (join "," $v.logOutputPaths)) }}
{{- include "karpenter.variable" (list "LOG_ERROR_OUTPUT_PATHS" (join "," $v.logErrorOutputPaths)) }}
{{- include "karpenter.variable" (list "METRICS_PORT" $v.controller.metrics.port) }}
{{- include "karpenter.variable" (list "HEALTH_PROBE_PORT" $v.controller.healthProbe.port) }}
{{- include "karpenter.variable" (list "HTTP_PROXY" $v.proxy.http) }}
{{- include "karpenter.variable" (list "HTTPS_PROXY" $v.proxy.https) }}
{{- if or $v.proxy.http $v.proxy.https }}
{{- /* The API server is reached inside the cluster, by the address that the kubelet puts into every container. */}}
{{- include "karpenter.variable" (list "NO_PROXY" (list "$(KUBERNETES_SERVICE_HOST)" (index $v.proxy "no") | compact | join ",")) }}
{{- end }}
{{- end }}

{{/* An endpoint of BKE: (list context value path). Without a value it follows from the cluster's id, unless it is to be learned. */}}
{{- define "karpenter.bkeEndpoint" -}}
{{- $bke := (index . 0).Values.bke }}
{{- if index . 1 }}{{ index . 1 }}
{{- else if and $bke.clusterID (not $bke.discoverFromPool) }}http://engine.api.k8saas.bizflycloud.vn/engine/{{ index . 2 }}/{{ $bke.clusterID }}
{{- end }}
{{- end }}

{{/* An https address without a port, as other clouds write it, has https's. */}}
{{- define "karpenter.clusterEndpoint" -}}
{{- $endpoint := .Values.settings.clusterEndpoint | trimSuffix "/" }}
{{- $endpoint }}{{ if and (hasPrefix "https://" $endpoint) (not (regexMatch ":[0-9]+$" $endpoint)) }}:443{{ end }}
{{- end }}
