{{/* Rejects keys that the chart does not know. Each message names the key to use instead, or the reason why there is none. */}}
{{- define "karpenter.checkKeys" -}}
{{- $known := .Files.Get "files/keys.yaml" | fromYaml }}
{{- $former := .Files.Get "files/former-keys.yaml" | fromYaml }}
{{- $values := omit (deepCopy .Values) "global" }}
{{- $errors := include "karpenter.unknownKeys" (list $values $known "" $former (include "karpenter.paths" (list $known "") | fromJsonArray)) | fromJsonArray }}
{{- with $errors }}
{{- fail (printf "\n%s\nAll values: https://github.com/bizflycloud/karpenter-provider-bizflycloud/tree/main/charts/karpenter-provider-bizflycloud#values" (join "\n" .)) }}
{{- end }}
{{- end }}

{{/* The paths of all known keys as JSON: (list known prefix). */}}
{{- define "karpenter.paths" -}}
{{- $prefix := index . 1 }}
{{- $paths := list }}
{{- range $key, $inner := index . 0 }}
{{- $paths = append $paths (print $prefix $key) }}
{{- if kindIs "map" $inner }}{{ $paths = concat $paths (include "karpenter.paths" (list $inner (print $prefix $key ".")) | fromJsonArray) }}{{ end }}
{{- end }}
{{- toJson $paths }}
{{- end }}

{{/* What is wrong with the keys of a group, as JSON: (list values known prefix former paths). */}}
{{- define "karpenter.unknownKeys" -}}
{{- $known := index . 1 }}{{ $prefix := index . 2 }}{{ $former := index . 3 }}{{ $paths := index . 4 }}
{{- $errors := list }}
{{- range $key, $value := index . 0 }}
{{- $path := print $prefix $key }}
{{- $inner := get $known $key }}
{{- if and (hasKey $known $key) (kindIs "map" $inner) (kindIs "map" $value) }}
{{- $errors = concat $errors (include "karpenter.unknownKeys" (list $value $inner (print $path ".") $former $paths) | fromJsonArray) }}
{{- else if not (hasKey $known $key) }}
{{- if hasKey $former.renamed $path }}
{{- $errors = append $errors (printf "%s was renamed: set %s" $path (get $former.renamed $path)) }}
{{- else if hasKey $former.rejected $path }}
{{- $errors = append $errors (printf "%s has no meaning here: %s" $path (get $former.rejected $path)) }}
{{- else if and (kindIs "map" $value) (contains (printf " %s." $path) (print " " (join " " (keys $former.renamed)))) }}
{{- $errors = concat $errors (include "karpenter.unknownKeys" (list $value dict (print $path ".") $former $paths) | fromJsonArray) }}
{{- else }}
{{- $nearest := include "karpenter.nearest" (list $path $paths) }}
{{- $errors = append $errors (printf "%s is not a value of this chart%s" $path (ternary (printf ": did you mean %s?" $nearest) "" (ne $nearest ""))) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $errors }}
{{- end }}

{{/* The known path whose last word shares the most pairs of letters with that of the given one: (list path paths). */}}
{{- define "karpenter.nearest" -}}
{{- $word := index . 0 | splitList "." | last | lower }}
{{- $group := index . 0 | splitList "." | initial | join "." }}
{{- $best := 0.55 }}{{ $nearest := "" }}
{{- range $path := index . 1 }}
{{- $other := $path | splitList "." | last | lower }}
{{- $shared := 0 }}
{{- range $i := until (int (sub (len $word) 1)) }}
{{- if contains (substr (int $i) (int (add $i 2)) $word) $other }}{{ $shared = add1 $shared }}{{ end }}
{{- end }}
{{- $score := divf (mulf 2 $shared) (max 1 (sub (add (len $word) (len $other)) 2)) }}
{{- if eq $group ($path | splitList "." | initial | join ".") }}{{ $score = addf $score 0.05 }}{{ end }}
{{- if gt $score $best }}{{ $best = $score }}{{ $nearest = $path }}{{ end }}
{{- end }}
{{- $nearest }}
{{- end }}
