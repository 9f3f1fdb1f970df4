{{- define "muster.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "muster" $name) }}{{ $name = printf "%s-muster" $name }}{{ end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "muster.account" -}}
{{- .Values.serviceAccount.name | default (include "muster.name" .) -}}
{{- end -}}

{{- define "muster.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The URL by which Karmada's API server calls the webhook. */ -}}
{{- define "muster.webhookUrl" -}}
{{- $service := printf "%s-webhook.%s.svc" (include "muster.name" .) .Release.Namespace -}}
{{- .Values.webhook.url | default (printf "https://%s:%v" $service .Values.webhook.service.port) -}}
{{- end -}}

{{- /* The address to listen on, for a port to follow. */ -}}
{{- define "muster.address" -}}
{{- $address := .Values.bindAddress -}}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end -}}
{{- $address -}}
{{- end -}}

{{- /* Of a pod of Muster's: its security context, and the Secret with the kubeconfig. */ -}}
{{- define "muster.podSecurity" -}}
{{- with .Values.podSecurityContext -}}
securityContext: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "muster.containerSecurity" -}}
{{- with .Values.securityContext -}}
securityContext: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "muster.kubeconfig" -}}
/etc/muster/karmada/{{ .Values.karmada.kubeconfig.key }}
{{- end -}}

{{- define "muster.kubeconfigMount" -}}
# A directory, and no subPath: a renewed token reaches the process.
- name: karmada
  mountPath: /etc/muster/karmada
  readOnly: true
{{- end -}}

{{- define "muster.kubeconfigVolume" -}}
- name: karmada
  secret:
    secretName: {{ .Values.karmada.kubeconfig.secretName }}
    defaultMode: 0440
{{- end -}}
