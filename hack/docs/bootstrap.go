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

Read how a new server becomes a node, and what a template of user data can use.

| BTbootstrapModeBT | the server runs | the kubelet's settings are |
|---|---|---|
| BTBKEBT (default) | your user data, if any, then the script of BKE's worker image | BKE's own: estimated, then learned from nodes |
| BTCustomBT | your user data, which must make it join, such as [kubeadm](../../config/samples/kubeadm/nodeclass.yaml) or [k3s](../../config/samples/k3s/nodeclass.yaml) | those of BTspec.kubeletBT, which your template must pass on |

## BizFly Kubernetes Engine

The script of the worker image reads the cluster's id, its join token and the endpoints from the server's metadata. With the recommended
chart value BTbke.discoverFromPoolBT, the controller learns them from the server of the newest node of BKE's own pools that has them (label
BTbke.bizflycloud.vn/node-idBT). A Node counts only if the metadata of its server names this cluster. Otherwise set BTbke.clusterIDBT, from
which the chart derives both endpoints, and the key BTbke_cluster_tokenBT of the Secret.

The condition BTBootstrapReadyBT names what was learned, which must be of the cluster that is set, and its source. If no server has the join
token, it is read from the launch configuration of a pool (*not certain*). A join endpoint that is nowhere follows from the name of the API
server: BThttp://engine.api.<domain>BT for BT<uid>.api.<domain>BT. A failed try is repeated after a minute.

BTbke.clusterIDBT decides which cluster this is, else the name of the API server, else the servers of NodeClaims, else most servers of pools.
Nodes whose server is of another cluster are ignored, and BTBootstrapReadyBT names them.

Where a NodeClass leaves them open, new servers have the networks, firewalls and public address of most servers of pools:
BTstatus.poolServerBT. If no more than half of them have the same, set BTnetworkSelectorTermsBT, BTfirewallSelectorTermsBT and BTpublicIPv4BT.

A join endpoint with plain BThttpBT is accepted, since BKE's own pools join so. BKE documents no way to give its kubelet labels or taints:
Karpenter adds them as the node registers. If you know a file from which your image's kubelet reads arguments, write BT.KubeletLabelsBT and
BT.KubeletTaintsBT to it with BTuserDataBT.

## Where user data comes from

BTuserDataFromBT names a Secret of the controller's namespace that the chart's BTuserDataSecretsBT grants; BTuserDataBT is the text itself.
Both are templates. Several pieces are put together in this order: Secret, BTuserDataBT, BKE's own script.

- Pieces of BT#cloud-configBT become one: lists are joined, maps merged, of two plain values the later stays. A part with a header BTMerge-TypeBT stays
  on its own.
- Beside other pieces, such as BKE's script, it is the first part of a MIME multipart document. A piece
  begins with BT#!BT, BT#cloud-configBT, BT#cloud-boothookBT, BT#includeBT, BT#part-handlerBT, or a MIME header.

User data that cloud-init could not use is rejected with part, line and remedy: a part of a type that it does not know, such as that of BTnodeadmBT,
or cloud-config that is no YAML map.

cloud-init runs BTruncmdBT of cloud-config last: in BKE mode, what must come before BKE's script belongs in a script, BTbootcmdBT or
BTwrite_filesBT. A script that fails does not stop those after it, BKE's own among them: where the server must not join, let the script wait
(BTsleep infinityBT) until Karpenter replaces the server. Rendered user data may have 16 KiB. Nodes launched with another
BTstatus.userDataHashBT drift; it follows a change of the Secret within a minute.

**Give user data nothing that outlives the join.** Every process on a server can read it, and so can every pod unless you [keep pods off the
metadata service](../operate/security.md#the-metadata-service).

## A join token per server

BTjoinToken: {ttl: 30m}BT creates a bootstrap token when a template uses BT.JoinTokenBT: a Secret of kube-system, one per attempt to launch,
deleted as soon as the node has registered or the NodeClaim is being deleted. It needs the chart's BTjoinTokens.enabledBT, which grants
creating and deleting Secrets of kube-system, and reading none.

Tokens have the group BTsystem:bootstrappers:karpenterBT and those of kubeadm and k3s, so that their bindings apply. **A token of kubeadm's
group can become any node, existing ones included.** Where you apply [rbac.yaml](../../config/samples/kubeadm/rbac.yaml), which binds
Karpenter's group alone, set the chart's BTjoinTokens.groupsBT to that group. The chart's admission policy accepts no other groups and no
token without an expiration.

## The kubelet's settings

In BTBKEBT mode the worker image decides them, and Karpenter plans with what nodes report. If the event BTNodeSmallerThanPlannedBT reports
that nodes offer less, or you know what your image reserves, set it. Nodes are not replaced:

BTBTBTyaml
spec:
  kubelet:
    maxPods: 60
    systemReserved: {cpu: 200m, memory: 1Gi}
BTBTBT

In BTCustomBT mode your template must pass them on: BT.KubeletConfigurationBT or all of BT.KubeletArgsBT. The scheduler subtracts
BTsystemReservedBT, BTkubeReservedBT and the higher of BTevictionHardBT and BTevictionSoftBT, and limits pods to the lower of BTmaxPodsBT
and BTpodsPerCoreBT x vCPUs.

## What templates can use

Templates are a part of [Go's text/template](https://pkg.go.dev/text/template) that cannot loop without end. A template has:

- the variables below, constants, and functions chained with BT|BT, such as BT.KubeletTaints | quoteBT
- BTifBT, BTwithBT and BTelseBT
- BTrangeBT over a variable that is a list or a map, in at most one other BTrangeBT, with its own variables:
  BT{{ range $name, $value := .KubeletArgs }}BT. Within BTrangeBT and BTwithBT, a variable is BT$.NodeNameBT

Braces of another program are a constant: BTdocker ps --format '{{ "{{.Names}}" }}'BT.

Anything else is an error that names it with line and column: variables of your own, BTdefineBT, BTtemplateBT, BTblockBT, BTprintBT,
parentheses. A template may run 4096 actions and functions, where a BTrangeBT counts once for each element.

| variable | |
|---|---|
`

const bootstrapFunctions = `
The last five are looked up when a template uses them; one that is not known is an error with the remedy. Looking up needs the chart's
BTuserData.lookupBT, or BTCLUSTER_ENDPOINTBT and BTspec.kubelet.clusterDNSBT.

Of text/template's own functions, BTandBT, BTorBT, BTnotBT, BTeqBT, BTneBT, BTlenBT and BTindexBT exist:
BT{{ if index .Labels "team" | eq "storage" }}BT. No result may be larger than user data.

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
