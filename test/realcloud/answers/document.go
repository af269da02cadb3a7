// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package answers writes down what a BizFly Cloud answers, without its secrets, in a form in which two clouds can be
// compared: what is in an answer and of which type, rather than its contents.
package answers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// minSecret is how long what is private must be to be looked for: what is shorter is found in ordinary words.
const minSecret = 6

// Version is that of the form; documents of different versions are not compared.
const Version = 1

// Document is what one run of the suite has learned.
type Document struct {
	// Version is Version.
	Version int `json:"version"`
	// Cloud is the host that was asked, or "sandbox".
	Cloud string `json:"cloud"`
	// Region is the region that was asked, for example HaNoi.
	Region string `json:"region"`
	// Findings are the answers to the questions that no documentation answers, by question.
	Findings map[string]Finding `json:"findings"`
	// Answers are what was answered, by method, route and status.
	Answers map[string]*Answer `json:"answers"`
}

// Finding is the answer to one question.
type Finding struct {
	// Question is what was asked, in words.
	Question string `json:"question"`
	// Answer is a word, a number or a list: the shortest form.
	Answer any `json:"answer"`
	// Behaviour is true where the sandbox must do the same; otherwise the answer is one of the account or the catalog.
	Behaviour bool `json:"behaviour"`
}

// Answer is what was answered to all requests of one method and route with the same status.
type Answer struct {
	// Count is how often.
	Count int `json:"count"`
	// ContentTypes are the media types, without parameters.
	ContentTypes []string `json:"contentTypes"`
	// Shape is the types of the values by their path in the body, for example "[].flavor.ram": ["number"].
	Shape map[string][]string `json:"shape,omitempty"`
	// Values are the contents of fields that can hold no secret and whose words matter, for example "[].status".
	Values map[string][]string `json:"values,omitempty"`
}

// Read reads a document.
func Read(path string) (*Document, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the file that the user names
	if err != nil {
		return nil, fmt.Errorf("reading answers: %w", err)
	}
	document := &Document{}
	if err := json.Unmarshal(content, document); err != nil {
		return nil, fmt.Errorf("decoding the answers in %s: %w", path, err)
	}
	if document.Version != Version {
		return nil, fmt.Errorf("the answers in %s have the form %d, expected %d: record them again", path, document.Version, Version)
	}
	return document, nil
}

// Write writes the document to a file, unless one of the secrets is in it after all: then it writes nothing and says
// which, by its place in the list.
func (d *Document) Write(path string, secrets []string) error {
	content, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding answers: %w", err)
	}
	for i, secret := range secrets {
		if len(secret) >= minSecret && strings.Contains(string(content), secret) {
			return fmt.Errorf("secret number %d would be in %s: nothing was written", i+1, path)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("making the folder of the answers: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing answers: %w", err)
	}
	return nil
}
