{{- /* What the templates in _server.tpl need to know about producer serve. */ -}}
{{- define "duefleet.http.server" -}}
part: http
port: 9340
admin: 9341
path: /v1/
{{- end }}

{{- /* The configuration of producer serve: of the scanners' one, what producers use, and the files of secrets. */ -}}
{{- define "duefleet.http.config" -}}
{{- $config := pick (include "duefleet.withoutUser" . | fromYaml) "redis" "log" "max_payload" }}
{{- include "duefleet.withSecret" (dict "config" $config "keys" .Values.http.secret.keys) }}
{{- end }}

{{- /* The part of it that the server reads only at its start: all. */ -}}
{{- define "duefleet.http.connections" -}}
{{ include "duefleet.http.config" . }}
{{- end }}

{{- define "duefleet.http.command" -}}
command: [/producer]
args:
  - serve
  - --config
  - /etc/duefleet/http.yaml
  - --listen
  - 0.0.0.0:9340
  - --admin-listen
  - 0.0.0.0:9341
  - --tokens
  - /run/secrets/tokens/{{ .Values.http.tokens.key }}
  {{- if .Values.http.tls.secretName }}
  - --tls-cert
  - /run/secrets/tls/tls.crt
  - --tls-key
  - /run/secrets/tls/tls.key
  {{- end }}
{{- end }}

{{- /* Secrets that the server reads again when they change: the folder's name, then the Secret's. */ -}}
{{- define "duefleet.http.secrets" -}}
tokens: {{ .Values.http.tokens.secretName }}
tls: {{ .Values.http.tls.secretName | quote }}
{{- end }}
