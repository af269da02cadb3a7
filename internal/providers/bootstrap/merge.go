// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"github.com/samber/lo"
	"go.yaml.in/yaml/v2"
)

const (
	cloudConfig    = "text/cloud-config"
	shellScript    = "text/x-shellscript"
	maxParts       = 32
	base64LineSize = 76
)

// contentTypes are cloud-init's own names for what begins so.
var contentTypes = []struct{ begins, contentType string }{
	{"#!", shellScript},
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"#cloud-config", cloudConfig},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#include", "text/x-include-url"},
	{"#part-handler", partHandler},
	{"## template: jinja", "text/jinja2"},
}

// part is one piece of user data.
type part struct {
	// field is what errors call the piece that it is from, and where the part of a document; empty for a whole piece.
	field, where string
	contentType  string
	text         string
}

// merge puts pieces of user data together in their order: one alone stays as it is, cloud-configs become one
// cloud-config, and beside anything else that is the first part of a MIME multipart document.
func merge(pieces []source) (string, error) {
	if len(pieces) == 1 {
		return pieces[0].text, checkAlone(pieces[0])
	}
	var parts []part
	for _, piece := range pieces {
		split, err := partsOf(piece)
		if err != nil {
			return "", err
		}
		if parts = append(parts, split...); len(parts) > maxParts {
			return "", invalidUserData(piece.field, "", fmt.Sprintf("there are more than %d parts", maxParts))
		}
	}
	if err := checkParts(parts); err != nil {
		return "", err
	}
	configs, others := lo.FilterReject(parts, func(p part, _ int) bool { return p.contentType == cloudConfig })
	if len(configs) > 1 {
		text, err := cloudConfigOf(configs)
		if err != nil || len(others) == 0 {
			return text, err
		}
		parts = append([]part{{contentType: cloudConfig, text: text}}, others...)
	}
	return multipartOf(parts)
}

// checkAlone checks a piece that is sent as it is. What is neither a document nor a cloud-config may be for another
// program than cloud-init.
func checkAlone(piece source) error {
	if isDocument(piece.text) || typeOfText(piece.text) == cloudConfig {
		if parts, err := partsOf(piece); err == nil { // cloud-init reads more kinds of documents than can be put together
			return checkParts(parts)
		}
	}
	return nil
}

// isDocument reports whether a text begins like a MIME document.
func isDocument(text string) bool {
	begins := strings.ToLower(text[:min(len(text), 16)])
	return strings.HasPrefix(begins, "content-type:") || strings.HasPrefix(begins, "mime-version:")
}

// partsOf is the piece itself, or the parts of one that is a MIME multipart document already.
func partsOf(piece source) ([]part, error) {
	text := piece.text
	if isDocument(text) {
		parts, err := readMultipart(text)
		if err != nil {
			return nil, invalidUserData(piece.field, "",
				"it begins like a MIME multipart document and is none: a header, boundary or encoding is wrong, or a part of it "+
					"is a document again")
		}
		for i := range parts {
			parts[i].field, parts[i].where = piece.field, fmt.Sprintf(", part %d", i+1)
		}
		return parts, nil
	}
	if contentType := typeOfText(text); contentType != "" {
		return []part{{field: piece.field, contentType: contentType, text: text}}, nil
	}
	return nil, invalidUserData(piece.field, "",
		"several pieces of user data are put together by their first line, and cloud-init does not know its first line: "+
			"begin with #!/bin/bash, #cloud-config or a MIME header")
}

func readMultipart(text string) ([]part, error) {
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	mediaType, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(mediaType, "multipart/") {
		return nil, errors.Join(err, errors.New("not multipart"))
	}
	reader := multipart.NewReader(message.Body, parameters["boundary"])
	var parts []part
	for len(parts) <= maxParts {
		next, err := reader.NextPart() // decodes quoted-printable
		if errors.Is(err, io.EOF) && len(parts) > 0 {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		mediaType, _, err := mime.ParseMediaType(next.Header.Get("Content-Type"))
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(mediaType, "multipart/") {
			// Its own boundary is a parameter of the header that is written anew: cloud-init would find no part in it.
			return nil, errors.New("a document in a document")
		}
		body := io.Reader(next)
		if strings.EqualFold(next.Header.Get("Content-Transfer-Encoding"), "base64") {
			body = base64.NewDecoder(base64.StdEncoding, next)
		}
		content, err := io.ReadAll(body) // less than the text, which is rendered and so bounded
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{contentType: mediaType, text: string(content)})
	}
	return nil, errors.New("too many parts")
}

// multipartOf writes the document. Its boundary follows from its content, so that the same content is the same user
// data. Its parts have no names: cloud-init numbers them, and runs scripts in that order, together with those that it
// finds in an archive, of which one of our names could be one.
func multipartOf(parts []part) (string, error) {
	hash := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(hash, p.text)
	}
	out := &limitedBuffer{}
	writer := multipart.NewWriter(out)
	if err := writer.SetBoundary("karpenter-" + hex.EncodeToString(hash.Sum(nil)[:12])); err != nil {
		return "", err
	}
	_, err := fmt.Fprintf(out, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=%q\r\n\r\n",
		writer.Boundary())
	for _, p := range parts {
		text, encoding := encoded(p.text)
		body, createErr := writer.CreatePart(textproto.MIMEHeader{
			"Content-Type":              {p.contentType + `; charset="utf-8"`},
			"Content-Transfer-Encoding": {encoding},
		})
		if err = errors.Join(err, createErr); err == nil {
			_, err = io.WriteString(body, text)
		}
	}
	if errors.Join(err, writer.Close()) != nil {
		return "", errTooLarge
	}
	return out.written.String(), nil
}

// encoded leaves plain text as it is and wraps what mail cannot carry.
func encoded(text string) (body, encoding string) {
	if plain := !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf || r == '\r' }); plain {
		return text, "7bit"
	}
	all := base64.StdEncoding.EncodeToString([]byte(text))
	return strings.Join(lo.ChunkString(all, base64LineSize), "\r\n"), "base64"
}

// cloudConfigOf makes one cloud-config: lists are put one after the other, maps are merged, and of two plain values the
// later one stays. cloud-init itself, given both, would drop a list of the first. Texts that are repeated by aliases
// share their memory until they are written: a document of 16 KiB can be a gigabyte long.
func cloudConfigOf(parts []part) (string, error) {
	merged := map[any]any{}
	for _, p := range parts {
		var next map[any]any
		if err := yaml.Unmarshal([]byte(p.text), &next); err != nil {
			return "", invalidUserData(p.field, "", "it begins with #cloud-config and is no YAML map")
		}
		merged = deepMerge(merged, next)
	}
	out := &limitedBuffer{}
	encoder := yaml.NewEncoder(out)
	if encoder.Encode(merged) != nil || encoder.Close() != nil {
		return "", errTooLarge
	}
	return "#cloud-config\n" + out.written.String(), nil
}

func deepMerge(first, second map[any]any) map[any]any {
	for key, value := range second {
		switch was := first[key].(type) {
		case map[any]any:
			if is, ok := value.(map[any]any); ok {
				value = deepMerge(was, is)
			}
		case []any:
			if is, ok := value.([]any); ok {
				value = append(was, is...)
			}
		}
		first[key] = value
	}
	return first
}
