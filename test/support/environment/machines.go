// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

// machinesHost is where machines reach the control plane and the sandbox: the address that test/e2e/nodes/nodes.sh gives the loopback
// interface of the network namespace that all of them share routes with.
var machinesHost = net.IPv4(10, 99, 0, 1)

// MachinesHost is the address at which machines reach what a suite serves for them.
func MachinesHost() string { return machinesHost.String() }

// reachedByNodes are the API server's arguments for being reached, and for reaching kubelets.
func (e *Environment) reachedByNodes() ([]string, error) {
	if !e.options.Machines {
		// A loopback address cannot be an endpoint of the kubernetes Service, which nothing uses here.
		return []string{"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"}, nil
	}
	const name = "apiserver-kubelet-client"
	id, err := e.pki.issue("kube-"+name, []string{"system:masters"})
	if err != nil {
		return nil, err
	}
	return []string{
		"--bind-address=0.0.0.0", "--advertise-address=" + machinesHost.String(), "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--kubelet-client-certificate=" + e.pki.path(name+".crt"), "--kubelet-client-key=" + e.pki.path(name+".key"),
	}, e.pki.write(name, id)
}

// listen is where the sandbox listens.
func (e *Environment) listen() string {
	host := loopback
	if e.options.Machines {
		host = machinesHost
	}
	return net.JoinHostPort(host.String(), "0")
}

// machinesArgs are the sandbox's arguments for real machines.
func (e *Environment) machinesArgs() []string {
	if !e.options.Machines {
		return nil
	}
	return []string{
		"--guests=real", "--machine-image=" + filepath.Join(e.root, ".cache", "node", "root"), "--machine-dir=" + filepath.Join(e.dir, "machines"),
	}
}

// Console is what a machine printed while it booted, by the id of its server.
func (e *Environment) Console(serverID string) string {
	content, err := os.ReadFile(filepath.Join(e.dir, "machines", serverID, "console.log")) //nolint:gosec // a file of ours
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// kubeadmConfig is what kubeadm init would be given. Nodes take their kubelet's configuration from it.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[1]s
clusterName: sandbox
certificatesDir: %[2]s
controlPlaneEndpoint: %[3]s
networking: {serviceSubnet: 10.0.0.0/24, dnsDomain: cluster.local}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[4]s}
nodeRegistration: {name: control-plane, criSocket: "unix:///nowhere.sock"}
bootstrapTokens:
  - {token: %[5]s, ttl: 2h, groups: ["system:bootstrappers:kubeadm:default-node-token"]}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# The machine that runs the tests may have no other version.
failCgroupV1: false
cgroupDriver: cgroupfs
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
`

// JoinToken is a bootstrap token with which machines may join that are none of Karpenter's.
const JoinToken = "abcdef.0123456789abcdef"

// joinConfiguration is kubeadm's for a node of that name, whose kubelet has these arguments.
func (e *Environment) joinConfiguration(name string, arguments map[string]string) string {
	list := lo.MapToSlice(arguments, func(name, value string) string { return fmt.Sprintf("{name: %s, value: %q}", name, value) })
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %s, caCertHashes: ["sha256:%x"]}
nodeRegistration:
  name: %s
  criSocket: unix:///run/containerd/containerd.sock
  kubeletExtraArgs: [%s]
`, e.server[len("https://"):], JoinToken, sha256.Sum256(e.pki.cert.RawSubjectPublicKeyInfo), name, strings.Join(list, ", "))
}

// AddNode creates a server with that metadata whose machine joins by itself, as that of a pool which is none of Karpenter's, and whose
// node has these labels. It returns before the node is there.
func (e *Environment) AddNode(ctx context.Context, spec cloud.ServerSpec, labels map[string]string) (cloud.Server, error) {
	join := e.joinConfiguration(spec.Name, map[string]string{
		"cloud-provider": "external",
		"node-labels":    strings.Join(lo.MapToSlice(labels, func(key, value string) string { return key + "=" + value }), ","),
	})
	spec.UserData = "#cloud-config\nwrite_files:\n  - path: /etc/kubernetes/join.yaml\n    content: |\n      " +
		strings.ReplaceAll(join, "\n", "\n      ") + `
runcmd:
  - [sysctl, -w, net.ipv4.ip_forward=1]
  - [kubeadm, join, --config, /etc/kubernetes/join.yaml]
`
	var created cloud.Server
	err := e.sandbox.Call(ctx, http.MethodPost, "servers", spec, &created)
	return created, err
}

// serveJoins answers what the stand-in of BKE's bootstrap asks for: with a bootstrap token, the engine's reservations for a server of
// that size, and none of our taints. Controllers find its address where they find the sandbox's.
func (e *Environment) serveJoins(ctx context.Context) error {
	if !e.options.Machines {
		return nil
	}
	path := "/engine/cluster_join/" + e.sandbox.env["BKE_CLUSTER_ID"]
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		cpus, _ := strconv.Atoi(r.FormValue("cpus"))
		memory, _ := strconv.ParseInt(r.FormValue("memory_mib"), 10, 64)
		if r.FormValue("token") != e.sandbox.env["BKE_CLUSTER_TOKEN"] || cpus == 0 || memory == 0 {
			http.Error(w, "not a node of this cluster", http.StatusForbidden)
			return
		}
		milliCPU, mib := guest.KubeReserved(cpus, memory)
		_, _ = fmt.Fprint(w, e.joinConfiguration(r.FormValue("name"), map[string]string{
			"cloud-provider": "external", "kube-reserved": fmt.Sprintf("cpu=%dm,memory=%dMi", milliCPU, mib), "system-reserved": "cpu=20m,memory=100Mi",
		}))
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(MachinesHost(), "0"))
	if err != nil {
		return fmt.Errorf("serving joins: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(e.ctx, func() { _ = server.Close() })
	// The controller takes them only of one host.
	host := "http://" + listener.Addr().String()
	e.sandbox.env["BKE_JOIN_ENDPOINT"], e.sandbox.env["BKE_LOG_ENDPOINT"] = host+path, host+strings.Replace(path, "cluster_join", "cluster_log", 1)
	return nil
}

// prepareJoins does what is left of kubeadm init: what nodes read before they join, and what they may do.
func (e *Environment) prepareJoins(ctx context.Context) error {
	version, err := e.KubernetesVersion()
	if err != nil {
		return err
	}
	file := filepath.Join(e.dir, "kubeadm.yaml")
	config := fmt.Sprintf(kubeadmConfig, "v"+version.String(), e.pki.dir, e.server[len("https://"):], machinesHost, JoinToken)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("writing kubeadm's configuration: %w", err)
	}
	for _, phase := range [][]string{{"upload-config", "kubeadm"}, {"upload-config", "kubelet"}, {"bootstrap-token"}} {
		args := append([]string{"init", "phase"}, phase...)
		command := exec.CommandContext(ctx, filepath.Join(e.root, ".cache", "node", "root", "usr", "bin", "kubeadm"), //nolint:gosec // a binary of ours
			append(args, "--config="+file, "--kubeconfig="+e.kubeconfig)...)
		command.Env = baseEnv()
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("kubeadm %v: %w\n%s", args, err, output)
		}
	}
	// In the machines kube-proxy is the kubelet's user.
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes:kube-proxy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}
	if err := e.client.Create(ctx, binding); err != nil {
		return fmt.Errorf("letting nodes run kube-proxy: %w", err)
	}
	return nil
}
