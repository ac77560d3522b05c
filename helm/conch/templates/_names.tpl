{{- define "conch.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* Both take a list: the root, and which part it is about. */ -}}
{{- define "conch.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Values.nameOverride | default $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "conch.labels" -}}
{{- $root := index . 0 -}}
{{ include "conch.selector" . }}
app.kubernetes.io/part-of: conch
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "conch.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "conch.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels: {{- include "conch.labels" (list $root (index . 1)) | nindent 2 }}
{{- end }}

{{- /* A list: the root, the image's values, and where they stand. */ -}}
{{- define "conch.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := required (printf "%s.image.repository: build the image, push it, and say where (docs/kubernetes.md)." (index . 2)) $image.repository -}}
{{ $repository }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}
