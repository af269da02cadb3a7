// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	"sigs.k8s.io/yaml"
)

// userDataPart is a piece of user data with the type by which cloud-init takes it.
type userDataPart struct{ contentType, text string }

const (
	typeShellScript = "text/x-shellscript"
	typeCloudConfig = "text/cloud-config"
	typeBootHook    = "text/cloud-boothook"
)

// cloudConfig is the part of a cloud-config that a machine here follows.
type cloudConfig struct {
	Hostname   string `json:"hostname"`
	WriteFiles []struct {
		Path     string `json:"path"`
		Content  string `json:"content"`
		Encoding string `json:"encoding"`
		Append   bool   `json:"append"`
	} `json:"write_files"`
	BootCmd []any `json:"bootcmd"`
	RunCmd  []any `json:"runcmd"`
}

// userDataParts splits user data as cloud-init does: by MIME, else by its first line. What it knows neither way, it ignores.
func userDataParts(userData string) ([]userDataPart, error) {
	begins := strings.ToLower(userData[:min(len(userData), 16)])
	if strings.HasPrefix(begins, "content-type:") || strings.HasPrefix(begins, "mime-version:") {
		return mimeParts(userData)
	}
	for _, known := range []userDataPart{{typeShellScript, "#!"}, {typeCloudConfig, "#cloud-config"}, {typeBootHook, "#cloud-boothook"}} {
		if strings.HasPrefix(userData, known.text) {
			return []userDataPart{{known.contentType, userData}}, nil
		}
	}
	return nil, errors.New("user data is not a script, cloud-config or MIME multipart document: cloud-init ran nothing")
}

func mimeParts(userData string) ([]userDataPart, error) {
	broken := func(err error) error { return fmt.Errorf("user data is a broken MIME document: %w", err) }
	message, err := mail.ReadMessage(strings.NewReader(userData))
	if err != nil {
		return nil, broken(err)
	}
	_, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, broken(err)
	}
	reader := multipart.NewReader(message.Body, parameters["boundary"])
	var parts []userDataPart
	for {
		next, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, broken(err)
		}
		contentType, _, err := mime.ParseMediaType(next.Header.Get("Content-Type"))
		if err != nil {
			return nil, broken(err)
		}
		var body io.Reader = next
		if strings.EqualFold(next.Header.Get("Content-Transfer-Encoding"), "base64") {
			body = base64.NewDecoder(base64.StdEncoding, next)
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, broken(err)
		}
		parts = append(parts, userDataPart{contentType, string(text)})
	}
}

// mergedConfig is all cloud-configs as one. By cloud-init's defaults, a key of a later one replaces the same key of an earlier
// one.
func mergedConfig(parts []userDataPart) (cloudConfig, error) {
	all := map[string]any{}
	for _, part := range parts {
		if part.contentType != typeCloudConfig {
			continue
		}
		var one map[string]any
		if err := yaml.Unmarshal([]byte(part.text), &one); err != nil {
			return cloudConfig{}, errors.New("a cloud-config is not YAML: cloud-init ran nothing of it")
		}
		for key, value := range one {
			all[key] = value
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return cloudConfig{}, err
	}
	config := cloudConfig{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return cloudConfig{}, errors.New("a cloud-config has write_files, bootcmd or runcmd of another form than cloud-init takes")
	}
	return config, nil
}

// commands makes a script of a list of commands, each a text or a list of words.
func commands(list []any) string {
	var script strings.Builder
	for _, command := range list {
		switch command := command.(type) {
		case string:
			script.WriteString(command + "\n")
		case []any:
			for _, word := range command {
				script.WriteString("'" + strings.ReplaceAll(fmt.Sprint(word), "'", `'\''`) + "' ")
			}
			script.WriteString("\n")
		}
	}
	return script.String()
}
