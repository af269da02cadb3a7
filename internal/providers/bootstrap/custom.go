/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"text/template"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// position is where text/template's errors say that something is wrong: the only part of them that never quotes the
// template, which may hold a join token.
var position = regexp.MustCompile(`^template: [^:]*:(\d+)(?::(\d+))?:`)

// plausible is an input with which a template is tried. Labels that a NodePool may bring are not known then, so a missing
// key of a map is no error yet.
func plausible(nodeClass *v1alpha1.BizflyNodeClass) Input {
	return Input{
		NodeName:          "nodepool-x7k2p-0a1b2c3d",
		NodeClass:         nodeClass,
		KubernetesVersion: "v1.35.4",
		NetworkIDs:        []string{"00000000-0000-0000-0000-000000000000"},
		CPU:               2,
		MemoryMiB:         4096,
	}
}

// execute renders the templates; tried says that it is only to see whether they can be.
func (p *DefaultProvider) execute(ctx context.Context, sources []source, input Input, tried bool) ([]source, error) {
	variables, err := p.variables(ctx, input, tried)
	if err != nil {
		return nil, err
	}
	pieces := make([]source, 0, len(sources))
	for _, s := range sources {
		text, err := s.render(variables, tried)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, source{field: s.field, text: text})
	}
	return pieces, nil
}

func (s source) render(variables *Variables, tried bool) (string, error) {
	missingKey := "missingkey=error"
	if tried {
		missingKey = "missingkey=zero"
	}
	// Parsed each time: a launch costs seconds and a template microseconds, and a cache would be one more thing to bound.
	parsed, err := template.New("userData").Funcs(functions).Option(missingKey).Parse(s.text)
	if err != nil {
		return "", invalidUserData(s.field, at(err),
			"the template does not parse: a brace or quote is missing, or a function does not exist; functions are "+functionNames)
	}
	bindSteps(parsed)
	out := &limitedBuffer{}
	err = parsed.Execute(out, variables)
	var invalid *ValidationError
	var lookup *lookupError
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, errTooLarge):
		return "", tooLarge()
	case errors.Is(err, errTooLong):
		return "", invalidUserData(s.field, "", fmt.Sprintf("the template goes round its loops and calls its parts more than %d times; let it repeat less", maxSteps))
	case errors.As(err, &invalid):
		return "", invalid
	case errors.As(err, &lookup):
		return "", lookup
	case errors.Is(err, errNoJoinToken):
		return "", invalidUserData(s.field, at(err), "the template uses .JoinToken, and spec.joinToken is not set; set it, for example joinToken: {}")
	}
	return "", invalidUserData(s.field, at(err),
		"the template cannot be rendered: a variable or key does not exist, or a function got what it cannot use; variables are "+variableNames)
}

func invalidUserData(field, where, problem string) error {
	return &ValidationError{Reason: ReasonInvalidUserData, Message: field + where + ": " + problem}
}

// at returns the line and column of a template error, and nothing else of it.
func at(err error) string {
	found := position.FindStringSubmatch(err.Error())
	switch {
	case found == nil:
		return ""
	case found[2] == "":
		return ", line " + found[1]
	}
	return fmt.Sprintf(", line %s, column %s", found[1], found[2])
}

var errTooLarge = errors.New("the rendered user data is too large")

// limitedBuffer refuses to grow beyond what the cloud accepts, so that a template that calls itself cannot eat the
// controller's memory.
type limitedBuffer struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxUserDataBytes {
		return 0, errTooLarge
	}
	return b.Buffer.Write(p)
}
