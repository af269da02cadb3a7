#!/usr/bin/env bash
# What a release needs to know of the repository: hack/release.sh check|notes v1.2.3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command=${1:-} tag=${2:-}
[[ $command =~ ^(check|notes)$ && $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
  { echo "usage: hack/release.sh check|notes v<major>.<minor>.<patch>[-<pre-release>]" >&2; exit 2; }
version=${tag#v}

# notes prints the section of the changelog about the version.
notes() {
  awk -v heading="## [$version]" '
    index($0, heading) == 1 { found = 1; next }
    found && (/^## / || /^\[[^]]+\]: /) { exit }
    found { lines[++n] = $0 }
    END {
      first = 1
      while (first <= n && lines[first] == "") first++
      while (n >= first && lines[n] == "") n--
      for (i = first; i <= n; i++) print lines[i]
      exit n < first
    }' CHANGELOG.md
}

# check reports everything that does not match the tag, not only the first mismatch.
check() {
  local chart field value failed=0
  notes >/dev/null || { echo "CHANGELOG.md has nothing below \"## [$version] - <date>\""; failed=1; }
  for chart in charts/*/Chart.yaml; do
    for field in version appVersion; do
      value=$(sed -n "s/^$field: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$chart")
      [[ $value == "$version" ]] || { echo "$chart: $field is \"$value\", the tag is $version"; failed=1; }
    done
  done
  return $failed
}

"$command"
