{{- define "icestream.fullname" -}}
{{- $name := .Release.Name | replace "." "-" }}{{/* Services have no dots in their names. */}}
{{- if regexMatch "^[0-9]" $name }}{{ fail "the release: a name that begins with a letter is needed, as Services have" }}{{ end }}
{{- if contains "icestream" $name }}{{ $name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-icestream" $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The name of what belongs to no namespace. Namespaces have no dots, so no two releases have the same one. */}}
{{- define "icestream.clusterName" -}}
{{ .Release.Namespace }}.{{ include "icestream.fullname" . }}-collector
{{- end }}

{{/* Each of the following takes (dict "root" $ "name" PART), or (dict "root" $ "suffix" SUFFIX) for the image. */}}
{{- define "icestream.selector" -}}
app.kubernetes.io/name: icestream
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "icestream.labels" -}}
{{ include "icestream.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "icestream.podLabels" -}}
{{ merge (include "icestream.labels" . | fromYaml) .root.Values.podLabels | toYaml }}
{{- end }}

{{- define "icestream.image" -}}
{{- $digest := index .root.Values.image.digests (.suffix | trimPrefix "-" | default "icestream") -}}
{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ .suffix }}{{ with $digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Everything of icestream but the collector runs under the "restricted" Pod Security Standard. */}}
{{- define "icestream.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "icestream.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Names under which a Service is reached. */}}
{{- define "icestream.hosts" -}}
{{- $name := printf "%s-%s" (include "icestream.fullname" .root) .name }}{{ $namespace := .root.Release.Namespace -}}
{{- $service := printf "%s.%s.svc" $name $namespace -}}
{{ concat (list $name (printf "%s.%s" $name $namespace) $service (printf "%s.cluster.local" $service)) .hosts | join "," }}
{{- end }}

{{- define "icestream.kafkaAddress" -}}
{{- if .Values.trial }}{{ include "icestream.fullname" . }}-kafka.{{ .Release.Namespace }}.svc:9094
{{- else }}{{ required "kafka.bootstrapServers: HOST:PORT of a Kafka is needed, or trial=true" .Values.kafka.bootstrapServers }}{{ end }}
{{- end }}

{{- define "icestream.kafkaEnv" }}
{{- with .Values.kafka }}
{{- if ne (hasPrefix "SASL" .securityProtocol) (ne .saslMechanism "") }}
{{- fail (printf "kafka.securityProtocol: %s has %s saslMechanism" .securityProtocol (ternary "no" "to have a" (ne .saslMechanism ""))) }}
{{- end }}
{{- if and .saslSecret.name (not .saslMechanism) }}
{{- fail "kafka.saslSecret: securityProtocol and saslMechanism are needed as well" }}
{{- end }}
{{- end }}
- {name: ICESTREAM_KAFKA, value: {{ include "icestream.kafkaAddress" . | quote }}}
{{- if not .Values.trial }}{{ with .Values.kafka }}
- {name: ICESTREAM_KAFKA_SECURITY_PROTOCOL, value: {{ .securityProtocol }}}
{{- with .prefix }}
- {name: ICESTREAM_KAFKA_PREFIX, value: {{ quote . }}}
{{- end }}
{{- with .saslMechanism }}
- {name: ICESTREAM_KAFKA_SASL_MECHANISM, value: {{ . }}}
{{- end }}
{{- if .saslSecret.name }}
- name: ICESTREAM_KAFKA_SASL_USERNAME
  valueFrom: {secretKeyRef: {name: {{ quote .saslSecret.name }}, key: {{ quote .saslSecret.usernameKey }}}}
- name: ICESTREAM_KAFKA_SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ quote .saslSecret.name }}, key: {{ quote .saslSecret.passwordKey }}}}
{{- end }}
{{- if .caSecret.name }}
- {name: ICESTREAM_KAFKA_SSL_CA, value: /etc/icestream/kafka-ca/ca.crt}
{{- end }}
{{- if .certificateSecret.name }}
- {name: ICESTREAM_KAFKA_SSL_CERTIFICATE, value: /etc/icestream/kafka-certificate/tls.crt}
- {name: ICESTREAM_KAFKA_SSL_KEY, value: /etc/icestream/kafka-certificate/tls.key}
{{- end }}
{{- end }}{{ end }}
{{- end }}

{{- define "icestream.clickhouseEnv" -}}
{{- with .Values.clickhouse.urlSecret }}
- name: ICESTREAM_CLICKHOUSE
  valueFrom:
    secretKeyRef:
      name: {{ required "clickhouse.urlSecret.name: a Secret with the address of a ClickHouse is needed, or trial=true" .name | quote }}
      key: {{ quote .key }}
{{- end }}
{{- end }}

{{/*
The environment of a container: (dict "root" $ "name" PART "part" its values), and a workload's "clickhouse", "symbolCache"
and "env". Of each name only the last is left, which is that of the values: Kubernetes refuses or mixes up variables that
are there twice when they change.
*/}}
{{- define "icestream.env" -}}
{{- $all := include "icestream.everyEnv" . | fromYamlArray }}{{ $last := dict }}
{{- range $place, $entry := $all }}{{ $_ := set $last $entry.name $place }}{{ end }}
{{- range $place, $entry := $all }}{{ if eq $place (get $last $entry.name) }}
- {{ toJson $entry }}
{{- end }}{{ end }}
{{- end }}

{{- define "icestream.everyEnv" -}}
{{- if eq .name "collector" }}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: ICESTREAM_HOST, value: $(NODE_NAME)}
- {name: ICESTREAM_KUBERNETES, value: api}
- {name: ICESTREAM_KUBERNETES_NODE, value: $(NODE_NAME)}
- {name: ICESTREAM_SPOOL, value: /var/lib/icestream/spool}
- {name: ICESTREAM_UNWIND_CACHE, value: /var/cache/icestream/unwind}
- {name: ICESTREAM_DEBUGINFOD_CACHE, value: /var/cache/icestream/debuginfod}
- {name: ICESTREAM_ACTIVITY_SOCKET, value: /run/icestream/activity.sock}
{{- end }}
{{- if ne .name "trial" }}
{{- include "icestream.kafkaEnv" .root }}
{{- with .root.Values.symbolStore }}
- {name: ICESTREAM_SYMBOL_STORE, value: {{ quote . }}}
{{- end }}
{{- end }}
{{- if .clickhouse }}
{{- include "icestream.clickhouseEnv" .root }}
{{- end }}
{{- if .symbolCache }}
- {name: ICESTREAM_SYMBOL_CACHE, value: /var/cache/icestream/symcaches}
{{- end }}
{{- range $name, $value := .env }}
- {name: {{ $name }}, value: {{ quote $value }}}
{{- end }}
{{- range $name, $value := merge (dict) .part.env .root.Values.env }}
- {name: {{ $name }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}}
{{- end }}
{{- end }}

{{- define "icestream.envFrom" -}}
{{- with concat .root.Values.envFrom .part.envFrom }}
envFrom: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Certificates and what values add, as volumes and where they are mounted. */}}
{{- define "icestream.volumes" -}}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- if not .Values.trial }}
{{- with .Values.kafka.caSecret }}{{ if .name }}
- {name: kafka-ca, secret: {secretName: {{ quote .name }}, items: [{key: {{ quote .key }}, path: ca.crt}]}}
{{- end }}{{ end }}
{{- with .Values.kafka.certificateSecret }}{{ if .name }}
- name: kafka-certificate
  secret:
    secretName: {{ quote .name }}
    items: [{key: {{ quote .certificateKey }}, path: tls.crt}, {key: {{ quote .keyKey }}, path: tls.key}]
{{- end }}{{ end }}
{{- with .Values.clickhouse.caSecret }}{{ if .name }}
- {name: clickhouse, secret: {secretName: {{ quote .name }}, items: [{key: {{ quote .key }}, path: ca.crt}]}}
{{- end }}{{ end }}
{{- end }}
{{- end }}

{{- define "icestream.volumeMounts" -}}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- if not .Values.trial }}
{{- if .Values.kafka.caSecret.name }}
- {name: kafka-ca, mountPath: /etc/icestream/kafka-ca, readOnly: true}
{{- end }}
{{- if .Values.kafka.certificateSecret.name }}
- {name: kafka-certificate, mountPath: /etc/icestream/kafka-certificate, readOnly: true}
{{- end }}
{{- if .Values.clickhouse.caSecret.name }}
- {name: clickhouse, mountPath: /etc/icestream/clickhouse, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{/* Where a pod may run. */}}
{{- define "icestream.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .part.priorityClassName | default .root.Values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "icestream.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "icestream.fullname" .root }}-{{ .name }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
  {{- with .part.serviceAccountAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: {{ eq .name "collector" }}
{{- end }}
