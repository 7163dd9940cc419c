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

{{- /* A configuration, .config, with the files of a Secret, whose keys are .keys. */ -}}
{{- define "duefleet.withSecret" -}}
{{- $config := deepCopy .config }}
{{- $dir := "/run/secrets/duefleet/" }}
{{- range $section, $settings := dict
      "redis" (dict "username_file" .keys.redisUsername "password_file" .keys.redisPassword)
      "rabbitmq" (dict "urls_file" .keys.rabbitmqUrls)
      "consul" (dict "token_file" .keys.consulToken) }}
{{- range $setting, $key := $settings }}
{{- if $key }}
{{- $_ := set $config $section (merge (dict $setting (print $dir $key)) (get $config $section | default dict)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The values under config without the scanners' user of Redis. */ -}}
{{- define "duefleet.withoutUser" -}}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "redis" (omit ($config.redis | default dict) "username" "username_file" "password_file") }}
{{- toYaml $config }}
{{- end }}

{{- /* The scanner's configuration: the values under config, the files of secrets, and the pod's own settings. */ -}}
{{- define "duefleet.config" -}}
{{- $config := include "duefleet.withSecret" (dict "config" .Values.config "keys" .Values.secret.keys) | fromYaml }}
{{- $_ := unset $config "console" }}
{{- $_ := set $config "admin" (dict "listen" "0.0.0.0:9320") }}
{{- $_ := set $config "shutdown_timeout" (printf "%ds" (int .Values.shutdownTimeoutSeconds)) }}
{{- toYaml $config }}
{{- end }}

{{- /* The part of the configuration that a scanner reads only at its start. */ -}}
{{- define "duefleet.connections" -}}
{{- omit (include "duefleet.config" . | fromYaml) "topics" | toYaml }}
{{- end }}
