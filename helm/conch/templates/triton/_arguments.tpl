{{- define "conch.triton-arguments" -}}
{{- with .Values.triton -}}
- --model-repository={{ .repository.url | default (printf "/models/%s" .repository.subPath | trimSuffix "/") }}
- --model-config-name={{ .variant }}
- --model-control-mode={{ .modelControl.mode }}
{{- if eq .modelControl.mode "explicit" }}
{{- range .modelControl.load }}
- --load-model={{ . }}
{{- end }}
{{- end }}
- --disable-auto-complete-config
- --exit-timeout-secs={{ .exitSeconds }}
{{- /* Nobody knows the pod's UID but who may read pods. So nobody loads models, maps memory or reads traces over the network. */}}
- --grpc-restricted-protocol=model-repository,shared-memory,statistics,trace,logging:closed=$(POD_UID)
- --http-restricted-api=inference,metadata,model-config,model-repository,shared-memory,statistics,trace,logging:closed=$(POD_UID)
{{- if .protocolHeader.existingSecret }}
- --grpc-restricted-protocol=inference,metadata,model-config,health:$(PROTOCOL_HEADER)
{{- end }}
{{- with .tls }}
{{- if .serverSecret }}
- --grpc-use-ssl=true
- --grpc-server-cert=/etc/conch/tls/tls.crt
- --grpc-server-key=/etc/conch/tls/tls.key
{{- if .mutual }}
- --grpc-use-ssl-mutual=true
- --grpc-root-cert=/etc/conch/tls/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- if eq .variant "cpu" }}
- --allow-gpu-metrics=false
{{- end }}
{{- with include "conch.triton-traces" $ }}
- --trace-config=mode=opentelemetry
- --trace-config=level=TIMESTAMPS
- --trace-config=rate=0
- --trace-config=opentelemetry,url={{ . }}
{{- end }}
{{- range .extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "conch.triton-environment" -}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- with .Values.triton }}
{{- with .protocolHeader.existingSecret }}
- name: PROTOCOL_HEADER
  valueFrom: {secretKeyRef: {name: {{ . }}, key: header}}
{{- end }}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "conch.triton-resources" -}}
requests: {{- toYaml .resources.requests | nindent 2 }}
limits:
  {{- toYaml .resources.limits | nindent 2 }}
  {{- if .gpus }}
  {{ .gpuResource }}: {{ .gpus }}
  {{- end }}
{{- end }}
