{{- define "duefleet.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "duefleet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "duefleet.labels" -}}
{{ include "duefleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The scanner's configuration: the values under config, the files of secrets, and the pod's own settings. */ -}}
{{- define "duefleet.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $dir := "/run/secrets/duefleet/" }}
{{- range $section, $settings := dict
      "redis" (dict "username_file" .Values.secret.keys.redisUsername "password_file" .Values.secret.keys.redisPassword)
      "rabbitmq" (dict "urls_file" .Values.secret.keys.rabbitmqUrls)
      "consul" (dict "token_file" .Values.secret.keys.consulToken) }}
{{- range $setting, $key := $settings }}
{{- if $key }}
{{- $_ := set $config $section (merge (dict $setting (print $dir $key)) (get $config $section | default dict)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $config "admin" (dict "listen" "0.0.0.0:9320") }}
{{- $_ := set $config "shutdown_timeout" (printf "%ds" (int .Values.shutdownTimeoutSeconds)) }}
{{- toYaml $config }}
{{- end }}

{{- /* The part of the configuration that a scanner reads only at its start. */ -}}
{{- define "duefleet.connections" -}}
{{- omit (include "duefleet.config" . | fromYaml) "topics" | toYaml }}
{{- end }}
