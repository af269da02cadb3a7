#!/bin/bash
# Keeps pods off the metadata service: metadataOptions.podAccess of the BizflyNodeClass.
set -euo pipefail
# After a script that fails, cloud-init would go on, and a server join whose pods reach the address.
trap 'echo "pods would reach the metadata service: this server does not join" >&2; sleep infinity' ERR
cat > /etc/karpenter-metadata-block.nft <<'NFT'
table ip karpenter-metadata-block
flush table ip karpenter-metadata-block
table ip karpenter-metadata-block {
  chain pods {
    type filter hook prerouting priority raw
    ip daddr 169.254.169.254 drop
  }
}
NFT
cat > /etc/systemd/system/karpenter-metadata-block.service <<'UNIT'
[Unit]
Description=Keep pods off the metadata service of BizFly Cloud
Before=containerd.service kubelet.service k3s-agent.service

[Service]
Type=oneshot
RemainAfterExit=true
ExecStartPre=-/bin/sh -c 'iptables --wait --table raw --delete PREROUTING --destination 169.254.169.254 --jump DROP'
ExecStart=/bin/sh -c 'iptables --wait --table raw --insert PREROUTING --destination 169.254.169.254 --jump DROP || nft --file /etc/karpenter-metadata-block.nft'

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now karpenter-metadata-block.service
