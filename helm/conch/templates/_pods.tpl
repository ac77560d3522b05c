{{- /* What the restricted Pod Security Standard asks for, and more: nothing can be written but what is mounted for it. */ -}}
{{- define "conch.pod-security" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "conch.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* A list: the root, which part, the part's values. */ -}}
{{- define "conch.scheduling" -}}
{{- $values := index . 2 }}
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- $selector := include "conch.selector" . }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ $selector | fromYaml | toJson }}}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{- define "conch.pod-metadata" -}}
{{- $values := index . 2 -}}
labels:
  {{- include "conch.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: conch
  {{- with $values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- /* The parts of a release find each other by these, and so do network policies. */ -}}
{{- define "conch.triton-address" -}}
{{- if .Values.triton.enabled -}}
dns:///{{ include "conch.fullname" . }}-triton:8001
{{- else -}}
{{ required "triton.external: with triton.enabled=false, say where Triton is (host:port,… or dns:///name:port)." .Values.triton.external }}
{{- end -}}
{{- end }}

{{- define "conch.traces" -}}
{{- with .Values.tracing.endpoint -}}{{ . }}{{- else -}}
{{- if .Values.collector.enabled -}}http://{{ include "conch.fullname" . }}-collector:{{ ternary 4317 4318 (eq .Values.tracing.protocol "grpc") }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "conch.triton-traces" -}}
{{- with .Values.tracing.tritonUrl -}}{{ . }}{{- else -}}
{{- if .Values.collector.enabled -}}http://{{ include "conch.fullname" . }}-collector:4318/v1/traces{{- end -}}
{{- end -}}
{{- end }}

{{- define "conch.redis-secret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" (include "conch.fullname" .)) }}
{{- end }}

{{- define "conch.redis-url" -}}
{{- if .Values.redis.enabled -}}
redis://{{ include "conch.fullname" . }}-redis:6379/0
{{- else -}}
{{ required "redis.url or redis.existingSecret: with redis.enabled=false, say where Redis is." .Values.redis.url }}
{{- end -}}
{{- end }}
