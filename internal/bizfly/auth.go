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

package bizfly

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
)

const (
	tokenRoute = "/token"
	// defaultTokenLife is documented by BizFly; minTokenLife and maxTokenLife bound what a reply may claim, the former so
	// that two clocks that disagree do not mean a login for every request.
	defaultTokenLife = 4 * time.Hour
	minTokenLife     = time.Minute
	maxTokenLife     = 24 * time.Hour
)

// session is what a login proved.
type session struct {
	token     string
	projectID string
	issuedAt  time.Time
}

// authenticator logs in. gobizfly never does: it has no deadline there, and recurses when the login itself is refused.
type authenticator struct {
	config   Config
	endpoint *url.URL
	wire     *wire

	mu sync.Mutex
	// project is that of the first login. The default project of a user can change behind our back, and the token of
	// another project answers 404 to everything that we own.
	project string
}

func (a *authenticator) login(ctx context.Context) (fetched[session], error) {
	value, err := a.exchange(ctx)
	outcome := "success"
	if err != nil {
		outcome = "failure"
		if IsAuth(err) {
			outcome = "refused"
		}
	}
	a.wire.metrics.logins.WithLabelValues(outcome).Inc()
	return value, err
}

func (a *authenticator) exchange(ctx context.Context) (fetched[session], error) {
	request := &gobizfly.TokenCreateRequest{AuthMethod: a.config.AuthMethod, ProjectID: a.config.ProjectID}
	if a.config.AuthMethod == AuthMethodPassword {
		request.Username, request.Password = a.config.Email, a.config.Password
	} else {
		request.AppCredID, request.AppCredSecret = a.config.AppCredID, a.config.AppCredSecret
	}
	body, err := json.Marshal(request) //nolint:gosec // a login sends its password
	if err != nil {
		return fetched[session]{}, &APIError{Class: ClassInvalid, NotSent: true, Message: "the credentials cannot be encoded"}
	}
	target := a.endpoint.JoinPath(tokenRoute)
	httpRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return fetched[session]{}, &APIError{Class: ClassInvalid, NotSent: true, Message: "the endpoint is no valid URL"}
	}
	httpRequest.Header.Set("X-Auth-Type", "token")
	answer, err := a.wire.send(httpRequest, exchangeInfo{kind: kindCreate, route: tokenRoute})
	if err != nil {
		return fetched[session]{}, loginError(err)
	}
	return a.read(answer)
}

// loginError gives the refusals of a login their meaning: nothing is bought or deleted by it, so it is never ambiguous.
func loginError(err error) error {
	apiError, ok := asAPIError(err)
	if !ok {
		return err
	}
	wasAmbiguous := apiError.Ambiguous
	apiError.Ambiguous = false
	switch {
	case apiError.Status == http.StatusBadRequest, apiError.Status == http.StatusUnauthorized, apiError.Status == http.StatusForbidden:
		apiError.Class = ClassAuth
	case errors.Is(apiError.Err, context.Canceled):
	case wasAmbiguous, apiError.Status == 0, apiError.Status == http.StatusNotFound:
		apiError.Class = ClassOutage
	}
	apiError.Message = strings.TrimSuffix("login: "+apiError.Message, ": ")
	return apiError
}

func (a *authenticator) read(answer *answer) (fetched[session], error) {
	var reply struct {
		Token     string `json:"token"`
		ProjectID string `json:"project_id"`
		// The struct of gobizfly reads the first name, the recorded replies of the API have the second.
		ExpireAt  string `json:"expire_at"`
		ExpiresAt string `json:"expires_at"`
	}
	if err := json.Unmarshal(answer.body, &reply); err != nil || reply.Token == "" || !validHeader(reply.Token) {
		return fetched[session]{}, &APIError{Class: ClassOutage, Status: answer.status, Message: "login: the answer holds no token"}
	}
	a.wire.redactor.learnToken(reply.Token)
	if err := a.confirmProject(reply.ProjectID); err != nil {
		return fetched[session]{}, err
	}
	now := a.config.Clock.Now()
	life := tokenLife(now, reply.ExpireAt, reply.ExpiresAt)
	return fetched[session]{
		value:     session{token: reply.Token, projectID: reply.ProjectID, issuedAt: now},
		refreshAt: now.Add(life / 5 * 4),
		expiresAt: now.Add(life),
	}, nil
}

func (a *authenticator) confirmProject(replied string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused := func(format string, args ...any) error {
		err := notSent(ClassAuth, format, args...)
		err.NotSent = false
		return err
	}
	switch {
	case replied == "" || !validID(replied):
		return refused("login: the token's reply names no project, so nothing that it answers could be trusted")
	case a.config.ProjectID != "" && replied != a.config.ProjectID:
		return refused("login: the token belongs to project %s but BIZFLY_CLOUD_PROJECT_ID is %s, use a credential of that project or change the variable", replied, a.config.ProjectID)
	case a.project != "" && replied != a.project:
		return refused("login: the credential's project changed from %s to %s, set BIZFLY_CLOUD_PROJECT_ID to the one that is meant", a.project, replied)
	}
	a.project = replied
	return nil
}

// tokenLife is how long the token is good for, from whichever expiry can be read.
func tokenLife(now time.Time, expiries ...string) time.Duration {
	for _, expiry := range expiries {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
			at, err := time.Parse(layout, expiry)
			// A past expiry is a clock that is wrong, ours or theirs: a 401 will tell.
			if err == nil && at.After(now) {
				return min(max(at.Sub(now), minTokenLife), maxTokenLife)
			}
		}
	}
	return defaultTokenLife
}

// validHeader tells whether a value can travel in a header as it is.
func validHeader(value string) bool {
	return value != "" && strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
}
