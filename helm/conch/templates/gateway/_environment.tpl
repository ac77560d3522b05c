{{- define "conch.environment" -}}
- {name: CONCH_LISTEN, value: "0.0.0.0:8080"}
- {name: CONCH_ADMIN_LISTEN, value: "0.0.0.0:8081"}
- {name: CONCH_ROUTES_FILE, value: /etc/conch/routes/routes.yaml}
- {name: CONCH_TENANTS_FILE, value: /etc/conch/tenants}
{{- if or .Values.tokens.text .Values.tokens.existingConfigMap }}
- {name: CONCH_TOKENS_FILE, value: /etc/conch/tokens/tokens.yaml}
{{- end }}
- {name: CONCH_DRAIN_DELAY_SECONDS, value: {{ .Values.gateway.drain.delaySeconds | quote }}}
- {name: CONCH_DRAIN_SECONDS, value: {{ .Values.gateway.drain.seconds | quote }}}
- name: CONCH_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "conch.redis-secret" . }}, key: url}}
- {name: CONCH_TRITON, value: {{ include "conch.triton-address" . | quote }}}
{{- with .Values.triton.protocolHeader.existingSecret }}
- name: CONCH_TRITON_PROTOCOL_HEADER
  valueFrom: {secretKeyRef: {name: {{ . }}, key: header}}
{{- end }}
{{- with .Values.triton.tls }}
{{- if .clientSecret }}
- {name: CONCH_TRITON_TLS_CA_FILE, value: /etc/conch/triton-tls/ca.crt}
{{- if .mutual }}
- {name: CONCH_TRITON_TLS_CERT_FILE, value: /etc/conch/triton-tls/tls.crt}
- {name: CONCH_TRITON_TLS_KEY_FILE, value: /etc/conch/triton-tls/tls.key}
{{- end }}
{{- with .serverName }}
- {name: CONCH_TRITON_TLS_SERVER_NAME, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $tls := dict "" .Values.gateway.tls "ADMIN_" .Values.gateway.adminTls }}
{{- if $tls.secret }}
- {name: CONCH_{{ $name }}TLS_CERT_FILE, value: /etc/conch/{{ $name | lower | replace "_" "-" }}tls/tls.crt}
- {name: CONCH_{{ $name }}TLS_KEY_FILE, value: /etc/conch/{{ $name | lower | replace "_" "-" }}tls/tls.key}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.gateway.settings }}
- {name: {{ $name }}, value: {{ include "conch.plain" $value | quote }}}
{{- end }}
{{- with .Values.tracing }}
{{- if include "conch.traces" $ }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ include "conch.traces" $ | quote }}}
- {name: OTEL_EXPORTER_OTLP_PROTOCOL, value: {{ .protocol }}}
- {name: OTEL_TRACES_SAMPLER, value: {{ .sampler }}}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .ratio | quote }}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ printf "k8s.namespace.name=%s,k8s.pod.name=$(POD_NAME),service.version=%s" $.Release.Namespace $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- with .Values.gateway.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Helm reads 10000000 from a file as 1e+07. */ -}}
{{- define "conch.plain" -}}
{{- if kindIs "float64" . -}}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{- define "conch.environment-secret" -}}
{{- if not .Values.redis.existingSecret -}}{{ include "conch.redis-url" . }}{{- end -}}
{{- end }}
