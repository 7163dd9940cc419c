{{- /* A server for HTTP besides the scanners. Its argument has root, the chart's own, and part, port, admin and
       path of a template duefleet.PART.server. */ -}}
{{- define "duefleet.server.name" -}}
{{ include "duefleet.name" .root }}-{{ .part }}
{{- end }}

{{- define "duefleet.server.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}-{{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "duefleet.server.labels" -}}
{{ include "duefleet.server.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "duefleet.server" -}}
{{- $server := . }}
{{- $part := .part }}
{{- with .root }}
{{- $values := get .Values $part }}
{{- $secrets := include (print "duefleet." $part ".secrets") . | fromYaml }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
data:
  {{ $part }}.yaml: | {{- include (print "duefleet." $part ".config") . | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 5
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector:
    matchLabels: {{- include "duefleet.server.selector" $server | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "duefleet.server.labels" $server | nindent 8 }}
        {{- with .Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        duefleet/connections: {{ include (print "duefleet." $part ".connections") . | sha256sum }}
        {{- with .Values.secret.version }}
        duefleet/secret: {{ . | toString | sha256sum }}
        {{- end }}
        {{- with .Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "duefleet.name" . }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # The preStop sleep (5 s), then 20 s for requests that began, and 10 s more.
      terminationGracePeriodSeconds: 35
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "duefleet.server.selector" $server | nindent 14 }}
      containers:
        - name: {{ $part }}
          image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          {{- include (print "duefleet." $part ".command") . | nindent 10 }}
          ports:
            - {name: http, containerPort: {{ $server.port }}}
            - {name: admin, containerPort: {{ $server.admin }}}
          # During this sleep the Service learns that the pod ends.
          lifecycle: {preStop: {sleep: {seconds: 5}}}
          startupProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 1
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 5
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          # Folders and no subPath, because Kubernetes updates only folders.
          volumeMounts:
            - {name: config, mountPath: /etc/duefleet, readOnly: true}
            - {name: secret, mountPath: /run/secrets/duefleet, readOnly: true}
            {{- range $folder, $secret := $secrets }}
            {{- if $secret }}
            - {name: {{ $folder }}, mountPath: /run/secrets/{{ $folder }}, readOnly: true}
            {{- end }}
            {{- end }}
            {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 12 }}{{ end }}
      volumes:
        - name: config
          configMap: {name: {{ include "duefleet.server.name" $server }}}
        - name: secret
          secret: {secretName: {{ $values.secret.name }}, defaultMode: 0440}
        {{- range $folder, $secret := $secrets }}
        {{- if $secret }}
        - name: {{ $folder }}
          secret: {secretName: {{ $secret }}, defaultMode: 0440}
        {{- end }}
        {{- end }}
        {{- with .Values.extraVolumes }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
  {{- with $values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $values.service.type }}
  selector: {{- include "duefleet.server.selector" $server | nindent 4 }}
  ports:
    - {name: http, port: {{ $server.port }}, targetPort: http}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow # a pod that isn't ready must not block a drain
  selector:
    matchLabels: {{- include "duefleet.server.selector" $server | nindent 6 }}
{{- with $values.ingress }}
{{- if .enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .tlsSecretName }}
  tls:
    - hosts: [{{ $values.ingress.host | quote }}]
      secretName: {{ . }}
  {{- end }}
  rules:
    - host: {{ required (print $part ".ingress.host is needed") .host | quote }}
      http:
        paths:
          - path: {{ $server.path }}
            pathType: Prefix
            backend:
              service:
                name: {{ include "duefleet.server.name" $server }}
                port: {name: http}
{{- end }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
---
# In: requests, metrics and health. Out: DNS and the servers that it uses.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "duefleet.server.selector" $server | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from: {{- toYaml ($values.ingressFrom | default (list (dict "namespaceSelector" dict))) | nindent 8 }}
      ports:
        - {protocol: TCP, port: http}
    - from: {{- toYaml (.Values.networkPolicy.ingressFrom | default (list (dict "namespaceSelector" dict))) | nindent 8 }}
      ports:
        - {protocol: TCP, port: admin}
  egress:
    - ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
    {{- range $values.egress }}
    - ports:
        {{- range .ports }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
      {{- with .to }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
{{- end }}
{{- if .Values.serviceMonitor.enabled }}
---
# Only for metrics: headless, so Prometheus finds each pod.
apiVersion: v1
kind: Service
metadata:
  name: {{ include "duefleet.server.name" $server }}-admin
  labels: {{- include "duefleet.server.labels" $server | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # the metrics of a pod that isn't ready matter most
  selector: {{- include "duefleet.server.selector" $server | nindent 4 }}
  ports:
    - {name: admin, port: {{ $server.admin }}, targetPort: admin}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "duefleet.server.name" $server }}
  labels:
    {{- include "duefleet.server.labels" $server | nindent 4 }}
    {{- with .Values.serviceMonitor.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels: {{- include "duefleet.server.selector" $server | nindent 6 }}
  endpoints:
    - port: admin
      path: /metrics
      interval: {{ .Values.serviceMonitor.interval }}
{{- end }}
{{- end }}
{{- end }}
