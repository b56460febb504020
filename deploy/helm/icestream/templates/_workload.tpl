{{/*
A stateless part: its Deployment, service account, disruption budget and, if wanted, what scales it. Takes
  root         $
  name         of the part; .Values has its settings under this name
  args         of `icestream`
  port         with /metrics, /healthz and /readyz
  ports        further container ports, by name
  clickhouse   true: it needs ClickHouse
  symbolCache  true: it keeps SymCaches
  env          more of it, by name
  stopSeconds  how long it may take to end
  serves       true: it has a Service, so a new pod is there before an old one goes. Others share partitions: a pod more
               than there are partitions would never be ready.
  group, topic, metric   the consumer group whose lag scales it
*/}}
{{- define "icestream.workload" -}}
{{- $part := index .root.Values .name -}}
{{- $fullname := printf "%s-%s" (include "icestream.fullname" .root) .name -}}
{{- $context := set . "part" $part -}}
{{- $scaled := and $part.autoscaling (ne $part.autoscaling.kind "none") -}}
{{- $most := $part.replicas }}{{ if $scaled }}{{ $most = $part.autoscaling.maxReplicas }}{{ end -}}
{{- if lt (int $most) (int $part.replicas) -}}
{{- fail (printf "%s.autoscaling.maxReplicas: %d are fewer than the %d replicas" .name (int $most) (int $part.replicas)) -}}
{{- end -}}
{{- if and (not .serves) (gt (int $most) (int .root.Values.topics.partitions)) -}}
{{- fail (printf "%s: %d replicas are more than topics.partitions, %d: each needs a partition" .name (int $most) (int .root.Values.topics.partitions)) -}}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $fullname }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
spec:
  {{- if not $scaled }}
  replicas: {{ $part.replicas }}
  {{- end }}
  selector:
    matchLabels: {{ include "icestream.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {{ if .serves }}{maxSurge: 1, maxUnavailable: 0}{{ else }}{maxSurge: 0, maxUnavailable: 1}{{ end }}
  template:
    metadata:
      labels: {{ include "icestream.podLabels" . | nindent 8 }}
      {{- with $part.podAnnotations }}
      annotations: {{ toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $fullname }}
      automountServiceAccountToken: {{ $part.serviceAccountToken | default false }}
      {{- include "icestream.placement" $context | nindent 6 }}
      {{- if not $part.affinity }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {{ include "icestream.selector" . | nindent 20 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ .stopSeconds }}
      containers:
        - name: {{ .name }}
          image: {{ include "icestream.image" (dict "root" .root "suffix" .image) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ toJson .args }}
          env: {{ include "icestream.env" $context | nindent 12 }}
          {{- include "icestream.envFrom" $context | nindent 10 }}
          ports:
            - {name: metrics, containerPort: {{ .port }}}
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          {{- include "icestream.probes" (dict "port" "metrics" "scheme" .scheme) | nindent 10 }}
          {{- if .serves }}
          lifecycle:
            preStop: {sleep: {seconds: 5}}  # until nobody sends it anything new
          {{- end }}
          resources: {{ $part.resources | default dict | toYaml | nindent 12 }}
          securityContext: {{ include "icestream.restricted" . | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .symbolCache }}
            - {name: symcaches, mountPath: /var/cache/icestream/symcaches}
            {{- end }}
            {{- if .tlsSecret }}
            - {name: tls, mountPath: /etc/icestream/tls, readOnly: true}
            {{- end }}
            {{- include "icestream.volumeMounts" .root | nindent 12 }}
      volumes:
        - {name: tmp, emptyDir: {}}
        {{- if .symbolCache }}
        - {name: symcaches, emptyDir: {}}  # the part itself limits it
        {{- end }}
        {{- with .tlsSecret }}
        - {name: tls, secret: {secretName: {{ quote . }}}}
        {{- end }}
        {{- include "icestream.volumes" .root | nindent 8 }}
---
{{ include "icestream.serviceAccount" $context }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $fullname }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow  # a node can be drained while Kafka or ClickHouse is away, too
  selector:
    matchLabels: {{ include "icestream.selector" . | nindent 6 }}
{{- if $scaled }}
---
{{ include "icestream.autoscaler" (dict "root" .root "name" .name "part" $part "group" .group "topic" .topic "metric" .metric) }}
{{- end }}
{{- end }}

{{- define "icestream.autoscaler" -}}
{{- $fullname := printf "%s-%s" (include "icestream.fullname" .root) .name -}}
{{- $kafka := .root.Values.kafka -}}
{{- if and (eq .part.autoscaling.kind "keda") (eq $kafka.saslMechanism "OAUTHBEARER") -}}
{{- fail (printf "%s.autoscaling.kind: keda cannot log in to Kafka with OAUTHBEARER here; take hpa or none" .name) -}}
{{- end -}}
{{- if eq .part.autoscaling.kind "hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $fullname }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $fullname }}}
  minReplicas: {{ .part.replicas }}
  maxReplicas: {{ .part.autoscaling.maxReplicas }}
  metrics:
    - type: External
      external:
        metric: {name: {{ .metric }}}
        target: {type: AverageValue, averageValue: {{ .part.autoscaling.lag | int64 | quote }}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 600}  # each change moves partitions
{{- else -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $fullname }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ $fullname }}}
  minReplicaCount: {{ .part.replicas }}
  maxReplicaCount: {{ .part.autoscaling.maxReplicas }}
  cooldownPeriod: 600
  triggers:
    - type: kafka
      metadata:
        bootstrapServers: {{ $kafka.bootstrapServers | quote }}
        consumerGroup: {{ $kafka.prefix }}{{ .group }}
        topic: {{ $kafka.prefix }}{{ .topic }}
        lagThreshold: {{ .part.autoscaling.lag | int64 | quote }}
        tls: {{ ternary "enable" "disable" (contains "SSL" $kafka.securityProtocol) }}
        {{- with $kafka.saslMechanism }}
        sasl: {{ get (dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512") . }}
        {{- end }}
      {{- if or $kafka.saslSecret.name $kafka.caSecret.name $kafka.certificateSecret.name }}
      authenticationRef: {name: {{ $fullname }}}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  name: {{ $fullname }}
  labels: {{ include "icestream.labels" . | nindent 4 }}
spec:
  secretTargetRef:
    {{- with $kafka.saslSecret }}{{ if .name }}
    - {parameter: username, name: {{ quote .name }}, key: {{ quote .usernameKey }}}
    - {parameter: password, name: {{ quote .name }}, key: {{ quote .passwordKey }}}
    {{- end }}{{ end }}
    {{- with $kafka.caSecret }}{{ if .name }}
    - {parameter: ca, name: {{ quote .name }}, key: {{ quote .key }}}
    {{- end }}{{ end }}
    {{- with $kafka.certificateSecret }}{{ if .name }}
    - {parameter: cert, name: {{ quote .name }}, key: {{ quote .certificateKey }}}
    - {parameter: key, name: {{ quote .name }}, key: {{ quote .keyKey }}}
    {{- end }}{{ end }}
      {{- end }}
{{- end }}
{{- end }}
