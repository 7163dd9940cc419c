{{- define "duefleet.http.name" -}}
{{ include "duefleet.name" . }}-http
{{- end }}

{{- define "duefleet.http.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-http
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "duefleet.http.labels" -}}
{{ include "duefleet.http.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The configuration of producer serve: of the scanners' one, what producers use, and the files of secrets. */ -}}
{{- define "duefleet.http.config" -}}
{{- $config := pick (deepCopy .Values.config) "redis" "log" "max_payload" }}
{{- $dir := "/run/secrets/duefleet/" }}
{{- $redis := omit ($config.redis | default dict) "username" "username_file" "password_file" }}
{{- with .Values.http.secret.keys.redisUsername }}{{ $_ := set $redis "username_file" (print $dir .) }}{{ end }}
{{- with .Values.http.secret.keys.redisPassword }}{{ $_ := set $redis "password_file" (print $dir .) }}{{ end }}
{{- $_ := set $config "redis" $redis }}
{{- toYaml $config }}
{{- end }}
