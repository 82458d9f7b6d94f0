{{- define "privtab.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default .version }}{{ end }}
{{- end }}

{{- define "privtab.registry.name" -}}
{{ .Release.Name }}-registry
{{- end }}

{{- define "privtab.registry.url" -}}
{{ .Values.sidecar.registryUrl | default (printf "https://%s.%s.svc:8443" (include "privtab.registry.name" .) .Release.Namespace) }}
{{- end }}

{{- define "privtab.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "privtab.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* A sidecar that is started first and ended last: the service starts once OPA has its bundles. */}}
{{- define "privtab.sidecar.container" -}}
- name: opa
  image: {{ include "privtab.image" .Values.opaImage | quote }}
  restartPolicy: Always
  args:
    - run
    - --server
    - --addr=127.0.0.1:8181
    - --diagnostic-addr=0.0.0.0:8282
    - --config-file=/config/config.yaml
    {{- range list .Values.sidecar.policyKey .Values.sidecar.stateKey }}
    - --set-file=keys.{{ .id }}.key=/keys/{{ .id }}.pub.pem
    {{- end }}
    - --log-format=json
    - --skip-version-check
  env:
    - name: PRIVTAB_INSTANCE
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - {name: PRIVTAB_APP, value: {{ .Values.service.name | quote }}}
    - {name: PRIVTAB_REGISTRY_URL, value: {{ include "privtab.registry.url" . | quote }}}
    - {name: PRIVTAB_CHANNEL, value: {{ .Values.sidecar.channel | quote }}}
    - {name: PRIVTAB_SYSTEM, value: {{ .Values.sidecar.system | quote }}}
    - {name: GOMEMLIMIT, value: {{ .Values.sidecar.memoryLimit | quote }}}
  ports:
    - {name: diagnostics, containerPort: 8282}
  startupProbe:
    httpGet: {path: "/health?bundles=true", port: diagnostics}
    periodSeconds: 2
    failureThreshold: 90
  readinessProbe:
    httpGet: {path: "/health?bundles=true", port: diagnostics}
    periodSeconds: 5
  livenessProbe:
    # Without bundles: a sidecar whose registry is away must not be started over.
    httpGet: {path: /health, port: diagnostics}
    periodSeconds: 10
    failureThreshold: 3
  resources: {{- toYaml .Values.sidecar.resources | nindent 4 }}
  {{- include "privtab.container" . | nindent 2 }}
  volumeMounts:
    - {name: config, mountPath: /config, readOnly: true}
    - {name: keys, mountPath: /keys, readOnly: true}
    - {name: token, mountPath: /secrets, readOnly: true}
    - {name: authority, mountPath: /tls, readOnly: true}
    - {name: bundles, mountPath: /bundles}
{{- end }}

{{- define "privtab.sidecar.volumes" -}}
- name: config
  configMap: {name: {{ .Release.Name }}-sidecar}
- name: keys
  configMap: {name: {{ .Release.Name }}-verification-keys}
- name: token
  # For root and for the group of the pod (fsGroup).
  secret: {secretName: {{ .Values.sidecar.tokenSecret }}, defaultMode: 0440}
- name: authority
  secret:
    secretName: {{ .Values.registry.tlsSecret }}
    defaultMode: 0440
    # Not the key.
    items: [{key: ca.crt, path: ca.crt}]
- name: bundles
  emptyDir: {sizeLimit: 1Gi}
{{- end }}
