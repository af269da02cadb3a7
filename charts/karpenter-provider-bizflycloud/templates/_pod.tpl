{{/* What the controller's pods and the pod of `helm test` have in common. */}}
{{- define "karpenter.podSpec" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ include "karpenter.serviceAccountName" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same for their containers. */}}
{{- define "karpenter.containerSpec" -}}
image: {{ include "karpenter.image" . | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- /* An empty profile, as in the AWS provider's defaults, is none that Kubernetes takes. */}}
{{- $context := dict }}
{{- range $name, $value := .Values.controller.securityContext }}
{{- if not (and (kindIs "map" $value) (empty $value)) }}{{ $_ := set $context $name $value }}{{ end }}
{{- end }}
{{- with $context }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* A name that stands twice is rejected by a server-side apply. */}}
{{- $env := .Values.controller.env | default list }}
{{- $names := list }}
{{- range $env }}{{ $names = append $names .name }}{{ end }}
{{- range include "karpenter.env" . | fromYamlArray }}
{{- if not (has .name $names) }}{{ $env = append $env . }}{{ end }}
{{- end }}
env:
  {{- toYaml $env | nindent 2 }}
{{- with .Values.controller.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.extraVolumeMounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
