{{- define "tidegate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tidegate.replicas" -}}
{{ .Values.replicas | default .Values.nodes }}
{{- end }}

{{- define "tidegate.isGroup" -}}
{{ if gt (int .Values.nodes) 1 }}yes{{ end }}
{{- end }}

{{/* The domain of the pods: each has a name in it, whether it is ready or not. */}}
{{- define "tidegate.domain" -}}
{{ include "tidegate.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The founders of the group, as the parameter `nodes` wants them. */}}
{{- define "tidegate.nodes" -}}
{{- $nodes := list -}}
{{- range $id := untilStep 1 (int (add1 .Values.nodes)) 1 -}}
{{- $nodes = append $nodes (printf "%d=%s-%d.%s:6379@16379" $id (include "tidegate.name" $) $id (include "tidegate.domain" $)) -}}
{{- end -}}
{{ join " " $nodes }}
{{- end }}

{{/* The name of the secret that holds one of the two secrets: the user's, or our own. */}}
{{- define "tidegate.secretName" -}}
{{ .secret.existingSecret | default (include "tidegate.name" .root) }}
{{- end }}

{{/* A secret's value: the given one, else the one that is there already, else a new one. */}}
{{- define "tidegate.secretValue" -}}
{{- $old := get (lookup "v1" "Secret" .root.Release.Namespace (include "tidegate.name" .root)) "data" | default dict -}}
{{- if .secret.value }}{{ .secret.value | b64enc }}
{{- else if hasKey $old .secret.key }}{{ index $old .secret.key }}
{{- else }}{{ randAlphaNum 40 | b64enc }}{{ end }}
{{- end }}
