// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// templates reads any Secret as one with this template.
type templates struct {
	client.Reader
	text string
}

// Get implements client.Reader.
func (t *templates) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.(*corev1.Secret).Data = map[string][]byte{"userData": []byte(t.text)}
	return nil
}

// FuzzUserData renders any two templates and puts them together: that ends, as what cloud-init can read, bounded and the same each
// time, or as an error that says what is wrong and quotes nothing.
func FuzzUserData(f *testing.F) {
	document := "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n" +
		"IyEvYmluL3NoCg==\n--x--\n"
	for _, seed := range [][2]string{
		{"#!/bin/sh\njoin {{ .JoinToken }}\n", ""}, {"#cloud-config\nruncmd: [a]\n", "#cloud-config\nruncmd: [{{ .NodeName }}]\nusers: {a: 1}\n"},
		{"#!/bin/sh\n", "#cloud-config\na: 1\n"}, {document, "#!/bin/sh\n"}, {document, document},
		{"#!/bin/sh\n{{ range 5000 }}{{ end }}", "x"}, {"{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}", ""}, {"{{ .Labels.none }}", "{{"},
		{"#!/bin/sh\n" +
			"{{ range $k, $v := .KubeletArgs }}{{ if $v }}{{ printf \"%s=%s\" $k $v | squote }}{{ else }}{{ with $.Values }}{{ . }}{{ end }}{{ end }}{{ end }}", "x"},
		{"#cloud-config\n[a]", "#cloud-config\nb: &b [*b]\n"}, {"#!/bin/sh\n\xff\r\n", "## template: jinja\n"}, {" \n", "\x00"},
	} {
		f.Add(seed[0], seed[1])
	}
	secrets := &templates{}
	renderer := bootstrap.NewDefaultProvider(bootstrap.Config{
		Options: &options.Options{
			ClusterName: "prod", Namespace: namespace, UserDataSecretNames: []string{"templates"},
			ClusterEndpoint: "10.20.0.10:6443",
		},
		Reader: secrets, JoinTokens: &issuer{}, CABundle: []byte(authority),
	}, &snapshot{})
	f.Fuzz(func(t *testing.T, first, second string) {
		if secrets.text = first; len(first)+len(second) > 8192 {
			t.Skip("a template has a bound of its own")
		}
		in := input(custom(second))
		in.NodeClass.Spec.UserDataFrom = &v1alpha1.UserDataSource{SecretKeyRef: &v1alpha1.KeySelector{Name: "templates", Key: "userData"}}
		in.NodeClass.Spec.JoinToken = &v1alpha1.JoinToken{}
		in.NodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{ClusterDNS: []string{"10.96.0.10"}}
		if second == "" {
			in.NodeClass.Spec.UserData = nil
		}
		rendered, err := renderer.Render(ctx, in)
		if err != nil {
			var invalid *bootstrap.ValidationError
			if !errors.As(err, &invalid) || invalid.Reason == "" || len(invalid.Message) > 1000 || strings.Contains(invalid.Message, "0123456789abcdef") {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		if again, err := renderer.Render(ctx, in); err != nil || again.UserData != rendered.UserData || again.UserDataHash != rendered.UserDataHash {
			t.Errorf("rendered again: %v, %v", again, err)
		}
		if len(rendered.UserData) > 16*1024 {
			t.Errorf("%d bytes", len(rendered.UserData))
		}
		if second != "" {
			readable(t, rendered.UserData)
		}
	})
}

// readable fails where cloud-init could not read what several pieces became.
func readable(t *testing.T, text string) {
	if strings.HasPrefix(text, "#cloud-config\n") {
		if err := yaml.Unmarshal([]byte(text), &map[any]any{}); err != nil {
			t.Errorf("%v: %q", err, text)
		}
		return
	}
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	kind, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("%q, %v: %q", kind, err, text)
	}
	reader, parts := multipart.NewReader(message.Body, parameters["boundary"]), 0
	for ; ; parts++ {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, _, err = mime.ParseMediaType(part.Header.Get("Content-Type"))
		}
		if err == nil {
			_, err = io.ReadAll(part)
		}
		if err != nil {
			t.Fatalf("part %d: %v: %q", parts, err, text)
		}
	}
	if parts < 2 {
		t.Errorf("%d parts: %q", parts, text)
	}
}
