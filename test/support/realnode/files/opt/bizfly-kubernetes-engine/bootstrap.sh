#!/bin/bash
# Stands in for the bootstrap of BizFly Kubernetes Engine's worker image. It reads the metadata keys that the engine gives its own
# nodes, and nothing else of the server. What the join endpoint answers is not public: the suite's answers with kubeadm's configuration.
set -euo pipefail
metadata=$(curl -fsS --retry 5 http://169.254.169.254/openstack/latest/meta_data.json)
value() { python3 -c 'import json, sys; print(json.load(sys.stdin)["meta"].get(sys.argv[1], ""))' "$1" <<<"$metadata"; }
needed() {
  local found
  found=$(value "$1")
  [[ -n $found ]] || { echo "bootstrap: the metadata has no $1" >&2; exit 1; }
  printf '%s' "$found"
}

[[ $(needed bizfly_cloud_service) == kubernetes_engine ]] || { echo "bootstrap: this is no server of the Kubernetes Engine" >&2; exit 1; }
cluster=$(needed bke_cluster_id)
token=$(needed bke_cluster_token)
endpoint=$(needed bke_join_endpoint)
[[ $endpoint == */engine/cluster_join/"$cluster" ]] || { echo "bootstrap: the join endpoint is not that of cluster $cluster" >&2; exit 1; }

sysctl -q -w net.ipv4.ip_forward=1
curl -fsS --retry 5 --data-urlencode "token=$token" --data-urlencode "name=$(hostname)" --data-urlencode "cpus=$(nproc --all)" \
  --data-urlencode "memory_mib=$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)" "$endpoint" >/etc/kubernetes/join.yaml
kubeadm join --config /etc/kubernetes/join.yaml
rm -f /etc/kubernetes/join.yaml
