{{- /* What the templates in _server.tpl need to know about scanner console. */ -}}
{{- define "duefleet.console.server" -}}
part: console
port: 8390
admin: 8391
path: /
{{- end }}

{{- /* The configuration of the console: the scanners' one with an operator's secrets, and the pod's own settings. */ -}}
{{- define "duefleet.console.config" -}}
{{- $config := include "duefleet.withoutUser" . | fromYaml }}
{{- range $section, $setting := dict "rabbitmq" "urls_file" "consul" "token_file" }}
{{- with get $config $section }}{{ $_ := set $config $section (omit . $setting) }}{{ end }}
{{- end }}
{{- $config := include "duefleet.withSecret" (dict "config" $config "keys" .Values.console.secret.keys) | fromYaml }}
{{- $console := merge (dict "listen" "0.0.0.0:8390" "admin_listen" "0.0.0.0:8391") ($config.console | default dict) }}
{{- if .Values.console.users.secretName }}
{{- $_ := set $console "users_file" (print "/run/secrets/users/" .Values.console.users.key) }}
{{- end }}
{{- if .Values.console.tls.secretName }}
{{- $_ := set $console "tls" (dict "cert_file" "/run/secrets/tls/tls.crt" "key_file" "/run/secrets/tls/tls.key") }}
{{- end }}
{{- $_ := set $config "console" $console }}
{{- toYaml $config }}
{{- end }}

{{- /* The part of it that the console reads only at its start. */ -}}
{{- define "duefleet.console.connections" -}}
{{- omit (include "duefleet.console.config" . | fromYaml) "topics" | toYaml }}
{{- end }}

{{- define "duefleet.console.command" -}}
command: [/scanner]
args:
  - console
  - --config
  - /etc/duefleet/console.yaml
  {{- if .Values.console.readOnly }}
  - --read-only
  {{- end }}
{{- end }}

{{- /* Secrets that the console reads again when they change: the folder's name, then the Secret's. */ -}}
{{- define "duefleet.console.secrets" -}}
users: {{ .Values.console.users.secretName | quote }}
tls: {{ .Values.console.tls.secretName | quote }}
{{- end }}
