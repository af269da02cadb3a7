// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"github.com/samber/lo"
)

// bootstrapIntroduction is what no code says. BT stands for a backtick.
const bootstrapIntroduction = `# Bootstrapping

<!-- Written by make generate from internal/providers/bootstrap. -->

How a new server becomes a node is BTspec.bootstrapModeBT of the BTBizflyNodeClassBT.

| BTbootstrapModeBT | the server runs | the kubelet's settings are |
|---|---|---|
| BTBKEBT (default) | user data of yours, if any, and then the script of BKE's worker image | BKE's own: estimated, and then learned from nodes. BTspec.kubeletBT declares them for the scheduler and is not sent |
| BTCustomBT | user data of yours, which must make it join | those of BTspec.kubeletBT, which your template must pass on: pods are scheduled by them |

Two templates for BTCustomBT are tested as they are: [kubeadm](../../config/samples/kubeadm/nodeclass.yaml) and
[k3s](../../config/samples/k3s/nodeclass.yaml).

## BizFly Kubernetes Engine

The script of the worker image reads from the server's metadata how to join: the cluster's id, its join token and the endpoints.
With BTBKE_DISCOVER_FROM_POOL=trueBT (chart: BTbke.discoverFromPoolBT), which is the recommended setting, they are learned from the
servers of up to three nodes of BKE's own pools in this cluster (label BTbke.bizflycloud.vn/node-idBT). Otherwise, set BTBKE_CLUSTER_IDBT,
BTBKE_CLUSTER_TOKENBT, BTBKE_JOIN_ENDPOINTBT and BTBKE_LOG_ENDPOINTBT; the chart derives both endpoints from BTbke.clusterIDBT. What is
learned must agree among the servers, with what is set, and with what the Kubernetes
Engine reports about the cluster, and both endpoints must be on one host. It is kept in memory only and learned again after a restart;
the condition BTBootstrapReadyBT names what was learned and from where. Where no server can be read or has the join token, it is read from
the launch configuration of a pool (*not certain*). A join endpoint that is nowhere follows from the name of the API server, as
BTsettings.clusterEndpointBT has it: BThttp://engine.api.<domain>BT for BT<uid>.api.<domain>BT. A try that fails is repeated
after a minute. Until the cluster is known, the network and the images that
follow from it are unknown too, and what was resolved last stays in use.

New servers also get what the interfaces of a pool's server have, where their NodeClass leaves it open: the networks, the firewalls, and a public
address or none. BTstatus.poolServerBT of the NodeClass shows it. It is read once for each spec of the NodeClass.

A join endpoint with plain BThttpBT is accepted, since BKE's own pools join so, but the same condition and an event name it as a risk.

BKE documents no way to give its kubelet labels or taints. Where you know the file from which it reads BTKUBELET_EXTRA_ARGSBT, set
BTBKE_KUBELET_ARGS_FILEBT; otherwise Karpenter labels and taints the node as it registers.

## Where user data comes from

BTuserDataFromBT names a key (default BTuserDataBT) of a Secret in the controller's own namespace, BTuserDataBT is the text itself, and both
are templates. The controller reads only the Secrets of BTUSER_DATA_SECRET_NAMESBT (chart: BTuserDataSecretsBT, which also grants exactly
these), never the one with the cloud's credentials.

One piece alone is sent as it is. Several are put together in this order: Secret, BTuserDataBT, BKE's own script.

- All are BT#cloud-configBT: one cloud-config. Lists are put one after the other, maps are merged, of two plain values the later stays.
- Otherwise: MIME multipart. A piece is known by its first line: BT#!BT, BT#cloud-configBT, BT#cloud-boothookBT, BT#includeBT, BT#part-handlerBT,
  or a MIME header, whose parts are taken over.

cloud-init writes the files of cloud-config first, then runs the scripts in their order, and BTruncmdBT of cloud-config last: in BKE mode
what must come before BKE's script belongs in a script, BTbootcmdBT or BTwrite_filesBT. BKE's Flatcar image takes a single script.

Rendered user data may have 16 KiB, all parts and their headers included, and a template may go round its loops and call its parts
4096 times. Errors name field, line and column, and never quote a
template or a value. BTstatus.userDataHashBT is the hash of the templates. It follows a change of the Secret within a minute, and nodes
launched with another one drift. Every process on a server can read its user data, and so can every pod unless you
[keep pods off the metadata service](../operate/security.md#the-metadata-service): give it nothing that outlives the join.

## A join token per server

BTjoinToken: {ttl: 30m}BT creates a bootstrap token when a template uses BT.JoinTokenBT: a Secret BTbootstrap-token-xxxxxxBT of kube-system, one per
attempt to launch, owned by its NodeClaim. The controller deletes it as soon as the node has registered or the NodeClaim is being deleted.
If the controller restarts in between, Kubernetes deletes it: its garbage collector with the NodeClaim, or kube-controller-manager's
BTtokencleanerBT when it has expired. The API server rejects an expired token in any case. BTjoinTokenBT needs BTJOIN_TOKENS=trueBT
(chart: BTjoinTokens.enabledBT), which grants creating and deleting Secrets of kube-system, and reading none.

Tokens stand for BTsystem:bootstrappers:karpenterBT and for the groups of kubeadm and k3s, so that their bindings apply. A token of kubeadm's
group can become any node, existing ones included. Where you apply
[rbac.yaml](../../config/samples/kubeadm/rbac.yaml), which binds Karpenter's group alone, leave out the other groups: set BTJOIN_TOKEN_GROUPSBT
(chart: BTjoinTokens.groupsBT) to BTsystem:bootstrappers:karpenterBT. The chart's admission policy accepts no other groups and no token without
an expiration.

## The kubelet's settings

In BTBKEBT mode the worker image decides them. Karpenter estimates them until nodes of the flavor have registered and then plans with what
nodes report. If an event BTNodeSmallerThanPlannedBT reports that nodes offer less than was planned, or you know what your image reserves,
set it. Nodes are not replaced, and never more is planned with than it leaves:

BTBTBTyaml
spec:
  kubelet:
    maxPods: 60
    systemReserved: {cpu: 200m, memory: 1Gi}
BTBTBT

In BTCustomBT mode your template must pass them on.

| BTspec.kubeletBT | what the scheduler computes |
|---|---|
| BTmaxPodsBT, BTpodsPerCoreBT | pods: the lower of BTmaxPodsBT and BTpodsPerCoreBT x vCPUs |
| BTsystemReservedBT, BTkubeReservedBT | taken from cpu, memory and ephemeral storage; what is not set has the default that templates get as well |
| BTevictionHardBT | taken from memory and ephemeral storage, as the kubelet's own allocatable does |
| BTevictionSoftBT | the same where it is higher: the kubelet's allocatable ignores it, but pods above it are evicted once BTevictionSoftGracePeriodBT is over |
| BTevictionMaxPodGracePeriodBT, BTimageGCHighThresholdPercentBT, BTimageGCLowThresholdPercentBT, BTcpuCFSQuotaBT, BTclusterDNSBT | nothing; the kubelet's own defaults apply where they are not set |

Pass on either BT.KubeletConfigurationBT whole or all of BT.KubeletArgsBT. A percentage is one of what the machine sees, which the scheduler
takes for a little more: it reserves too much rather than too little.

## What templates can use

Templates are [Go's text/template](https://pkg.go.dev/text/template).

| variable | |
|---|---|
`

const bootstrapFunctions = `
BTAPIServerEndpointBT, BTCABundleBT, BTCACertHashesBT, BTClusterDNSBT and BTJoinTokenBT are looked up when a template uses them; one that is not known
is an error with the remedy. Looking up needs to read the ConfigMap BTkube-public/cluster-infoBT and the Service BTkube-system/kube-dnsBT
(chart: BTuserData.lookupBT), or BTCLUSTER_ENDPOINTBT and BTCLUSTER_DNSBT.

| function | |
|---|---|
`

// bootstrapPage is docs/reference/bootstrap.md: what templates can use is read from the code that offers it.
func bootstrapPage() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	rows, err := variableRows(filepath.Join(root, bootSource, "variables.go"))
	if err != nil {
		return "", err
	}
	functions, err := functionRows(filepath.Join(root, bootSource, "template.go"))
	if err != nil {
		return "", err
	}
	text := bootstrapIntroduction + strings.Join(rows, "") + bootstrapFunctions + strings.Join(functions, "")
	return strings.ReplaceAll(text, "BT", "`"), nil
}

// variableRows are the fields and methods of Variables with their doc comments.
func variableRows(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var rows []string
	row := func(name string, kind ast.Expr, doc *ast.CommentGroup) {
		sentence := constant{name: name, doc: strings.Replace(doc.Text(), name+" are ", name+" is ", 1)}.sentence()
		rows = append(rows, fmt.Sprintf("| BT.%sBT BT%sBT | %s |\n", name, types.ExprString(kind), strings.ReplaceAll(sentence, "|", "\\|")))
	}
	for _, declaration := range parsed.Decls {
		switch declaration := declaration.(type) {
		case *ast.GenDecl:
			for _, field := range fieldsOf(declaration, "Variables") {
				if len(field.Names) == 1 && field.Names[0].IsExported() {
					row(field.Names[0].Name, field.Type, field.Doc)
				}
			}
		case *ast.FuncDecl:
			if declaration.Recv != nil && declaration.Name.IsExported() && types.ExprString(declaration.Recv.List[0].Type) == "*Variables" {
				row(declaration.Name.Name, declaration.Type.Results.List[0].Type, declaration.Doc)
			}
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("there are no variables in " + file)
	}
	return rows, nil
}

func fieldsOf(declaration *ast.GenDecl, name string) []*ast.Field {
	for _, spec := range declaration.Specs {
		if named, ok := spec.(*ast.TypeSpec); ok && named.Name.Name == name {
			if structure, ok := named.Type.(*ast.StructType); ok {
				return structure.Fields.List
			}
		}
	}
	return nil
}

// functionRows are the lines of the doc comment of functions that are indented.
func functionRows(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, declaration := range parsed.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR || group.Specs[0].(*ast.ValueSpec).Names[0].Name != "functions" {
			continue
		}
		rows := lo.FilterMap(strings.Split(group.Doc.Text(), "\n"), func(line string, _ int) (string, bool) {
			usage, meaning, found := strings.Cut(strings.TrimSpace(line), "  ")
			if !strings.HasPrefix(line, "\t") {
				return "", false
			}
			if !found {
				usage, meaning = strings.TrimSpace(line), ""
			}
			return fmt.Sprintf("| BT%sBT | %s |\n", usage, strings.TrimSpace(meaning)), true
		})
		if len(rows) > 0 {
			return rows, nil
		}
	}
	return nil, errors.New("there are no functions in " + file)
}
