// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ControllerUser is the user that StartController's controller is to the API server.
const ControllerUser = "karpenter"

// auditPolicy writes down who asked for what in which namespace, of controllers and service accounts only, and never a body: those of
// Secrets would be in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: Metadata
    users: ["` + ControllerUser + `"]
  - level: None
`

// AuditEvent is one request as the API server's audit log has it; its fields are those of audit.k8s.io/v1.
type AuditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	RequestURI string    `json:"requestURI"`
	ReceivedAt time.Time `json:"requestReceivedTimestamp"`
	ObjectRef  *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// auditArgs are the API server's arguments for an audit log.
func (e *Environment) auditArgs() ([]string, error) {
	if !e.options.Audit {
		return nil, nil
	}
	policy := filepath.Join(e.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + e.logPath("audit"), "--audit-log-mode=blocking"}, nil
}

// AuditEvents are the requests of a user, by its whole name, that the API server has answered or begun to answer, in
// order. Options.Audit must be set.
func (e *Environment) AuditEvents(user string) ([]AuditEvent, error) {
	file, err := os.Open(e.logPath("audit"))
	if errors.Is(err, fs.ErrNotExist) && e.options.Audit {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var events []AuditEvent
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event AuditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if event.User.Username == user {
			events = append(events, event)
		}
	}
	return events, lines.Err()
}
