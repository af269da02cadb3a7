// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	partHandler = "text/part-handler"
	// nodeadmConfig is the part with which EKS' nodeadm is configured.
	nodeadmConfig = "application/node.eks.aws"
)

var (
	// usableTypes are the types of parts that cloud-init handles.
	usableTypes = func() sets.Set[string] {
		types := sets.New("text/x-shellscript-per-boot", "text/x-shellscript-per-instance", "text/x-shellscript-per-once",
			"text/upstart-job")
		for _, known := range contentTypes {
			types.Insert(known.contentType)
		}
		return types
	}()
	// vagueTypes are those for which cloud-init looks at the first line instead.
	vagueTypes = sets.New("text/plain", "text/x-not-multipart", "application/octet-stream")
	// compressedTypes are those that cloud-init unpacks.
	compressedTypes = regexp.MustCompile(`^application/.*(gzip|gunzip|compress)`)
	// yamlLine is the line in an error of package yaml, of which the rest may quote the text.
	yamlLine = regexp.MustCompile(`line (\d+)`)
)

// typeOf returns how cloud-init handles a part: its type, or what its first line makes it; "" where it does not know
// either.
func typeOf(p part) string {
	if !vagueTypes.Has(p.contentType) {
		return p.contentType
	}
	return typeOfText(p.text)
}

// typeOfText returns the type of what begins so; "" where cloud-init does not know the first line.
func typeOfText(text string) string {
	for _, known := range contentTypes {
		if strings.HasPrefix(text, known.begins) {
			return known.contentType
		}
	}
	return ""
}

// checkParts rejects parts that cloud-init cannot use: it would only log that on the server, which then never joins.
func checkParts(parts []part) error {
	handled := false
	for _, p := range parts {
		switch contentType := typeOf(p); {
		case contentType == partHandler:
			handled = true // it may handle any type
		case contentType == cloudConfig:
			if err := checkCloudConfig(p); err != nil {
				return err
			}
		case usableTypes.Has(contentType), compressedTypes.MatchString(contentType), handled && contentType != "":
		case contentType == nodeadmConfig:
			return invalidUserData(p.field, p.where, "its type is that of nodeadm's configuration, which only EKS has; write "+
				"the kubelet's settings into spec.kubelet, and let a part of type text/x-shellscript or text/cloud-config make "+
				"the server join")
		case contentType == "":
			return invalidUserData(p.field, p.where, "cloud-init does not know its first line: begin with #!/bin/bash or "+
				"#cloud-config, or give the part a type")
		default:
			return invalidUserData(p.field, p.where, "cloud-init does not know its Content-Type; use text/x-shellscript or "+
				"text/cloud-config, or put a text/part-handler for it before it")
		}
	}
	return nil
}

// checkCloudConfig rejects a cloud-config that is no YAML map.
func checkCloudConfig(p part) error {
	var config map[any]any
	err := yaml.Unmarshal([]byte(p.text), &config)
	if err == nil {
		return nil
	}
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		p.where += ", line " + found[1]
	}
	return invalidUserData(p.field, p.where, "it begins with #cloud-config and is no YAML map; the line is that of the "+
		"rendered text. Check its indentation and quotes with cloud-init schema --config-file")
}
