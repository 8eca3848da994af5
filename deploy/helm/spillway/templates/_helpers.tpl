{{- define "spillway.name" -}}
{{- if contains "spillway" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-spillway" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillway.labels" -}}
{{ include "spillway.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The roles that have pods, as a list in JSON. */}}
{{- define "spillway.roles" -}}
{{- if .Values.split }}["ingest","drain"]{{ else }}["all"]{{ end }}
{{- end }}

{{/* The values of a role's pods, as YAML: those of "all" below its own. Takes root and role. */}}
{{- define "spillway.pods" -}}
{{- mergeOverwrite (deepCopy .root.Values.all) (deepCopy (index .root.Values .role | default dict)) | toYaml }}
{{- end }}

{{/* The name of a role's objects: that of the release, with the role if there are two. */}}
{{- define "spillway.roleName" -}}
{{ include "spillway.name" .root }}{{ if .root.Values.split }}-{{ .role }}{{ end }}
{{- end }}

{{/* The label job of its metrics: two releases of one name are two jobs. A value of a label. */}}
{{- define "spillway.job" -}}
{{ printf "%s.%s" .Release.Namespace (include "spillway.name" .) | trunc 63 | trimSuffix "-" | trimSuffix "." }}
{{- end }}

{{/* What cannot work ends here, with what to change. */}}
{{- define "spillway.check" -}}
{{- $v := .Values }}
{{- if not (or $v.redis.url $v.redis.secret.name) }}{{ fail "no store: set redis.secret.name to a Secret that has the URL of Redis, or redis.url" }}{{ end }}
{{- if and $v.redis.url $v.redis.secret.name }}{{ fail "redis.url and redis.secret.name are both set: leave one out" }}{{ end }}
{{- if and $v.config $v.configSecret.name }}{{ fail "config and configSecret.name are both set: leave one out" }}{{ end }}
{{- if not (or $v.adminToken.secret.name $v.insecureNoAuth (hasKey $v.config "admin_tokens") $v.configSecret.name) }}{{ fail "the admin port has no token: set adminToken.secret.name, or insecureNoAuth=true to let everybody use both ports" }}{{ end }}
{{- $namespaces := dig "namespaces" dict ($v.config | default dict) }}
{{- if not (or $v.insecureNoAuth $v.configSecret.name $namespaces) }}{{ fail "the data port has no tokens: list namespaces with their tokens under config or in configSecret, or set insecureNoAuth=true" }}{{ end }}
{{- range list "redis" "role" "listen" "admin_listen" "admin_token" "insecure_no_auth" "shutdown_delay" "shutdown_timeout" "tls_cert" "tls_key" "admin_tls_cert" "admin_tls_key" }}
{{- if hasKey $v.config . }}{{ fail (printf "config.%s: the chart sets it from a value of its own; see values.yaml" .) }}{{ end }}
{{- end }}
{{- end }}
