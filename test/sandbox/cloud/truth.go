// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrNotFound is what changes to a server or volume that does not exist return.
var ErrNotFound = errors.New("not found")

type stockBody struct {
	Flavor    string `json:"flavor"`
	Zone      string `json:"zone"`
	Plan      string `json:"plan"`
	Available *int   `json:"available"`
}

type faultsBody struct {
	Seed  int64   `json:"seed"`
	Rules []Fault `json:"rules"`
}

type attachBody struct {
	ServerID string `json:"server_id"`
}

// truthHandler serves /_sandbox/: no token, JSON, and never in the request log.
func (c *Cloud) truthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sandbox/state", func(w http.ResponseWriter, _ *http.Request) { c.write(w, ok(c.State())) })
	mux.HandleFunc("GET /_sandbox/bill", func(w http.ResponseWriter, _ *http.Request) { c.write(w, ok(c.Bill())) })
	mux.HandleFunc("GET /_sandbox/offerings", func(w http.ResponseWriter, r *http.Request) { c.write(w, ok(c.Offerings(r.URL.Query().Get("plan")))) })
	mux.HandleFunc("GET /_sandbox/requests", func(w http.ResponseWriter, r *http.Request) {
		if summary := r.URL.Query().Get("summary"); summary != "" && summary != "0" {
			c.write(w, ok(c.RequestCounts()))
			return
		}
		c.write(w, ok(c.Requests()))
	})
	mux.HandleFunc("DELETE /_sandbox/requests", func(w http.ResponseWriter, _ *http.Request) {
		c.ResetRequests()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT /_sandbox/stock", change(c, func(body stockBody) error {
		if body.Available == nil {
			return errors.New("available is required (-1 is unlimited)")
		}
		c.SetStock(body.Flavor, body.Zone, body.Plan, *body.Available)
		return nil
	}))
	mux.HandleFunc("PUT /_sandbox/quota", change(c, func(body Quota) error {
		c.SetQuota(body)
		return nil
	}))
	mux.HandleFunc("POST /_sandbox/faults", change(c, func(body faultsBody) error {
		for i := range body.Rules {
			if err := body.Rules[i].Validate(); err != nil {
				return err
			}
		}
		c.AddFaults(body.Seed, body.Rules...)
		return nil
	}))
	mux.HandleFunc("DELETE /_sandbox/faults", func(w http.ResponseWriter, _ *http.Request) {
		c.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_sandbox/tokens/expire", func(w http.ResponseWriter, _ *http.Request) {
		c.ExpireTokens()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_sandbox/servers", add(c, func(spec ServerSpec) any { return c.AddServer(spec) }))
	mux.HandleFunc("POST /_sandbox/pools", add(c, func(spec PoolSpec) any { return map[string]string{"id": c.AddWorkerPool(spec)} }))
	mux.HandleFunc("POST /_sandbox/volumes", add(c, func(spec VolumeSpec) any { return c.AddVolume(spec) }))
	mux.HandleFunc("POST /_sandbox/volumes/{id}/attach", func(w http.ResponseWriter, r *http.Request) {
		change(c, func(body attachBody) error { return c.AttachVolume(r.PathValue("id"), body.ServerID) })(w, r)
	})
	mux.HandleFunc("DELETE /_sandbox/servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := c.RemoveServer(r.PathValue("id")); err != nil {
			c.write(w, problem(http.StatusNotFound, err.Error()))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	c.editRoutes(mux)
	return mux
}

// add makes what a strict JSON body describes, and answers with it. What panics in Go, because the test is wrong, is a
// rejection here.
func add[T any](c *Cloud, build func(T) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if wrong := recover(); wrong != nil {
				c.write(w, problem(http.StatusBadRequest, fmt.Sprint(wrong)))
			}
		}()
		var spec T
		decoder := json.NewDecoder(io.LimitReader(r.Body, maxBody))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&spec); err != nil {
			c.write(w, problem(http.StatusBadRequest, err.Error()))
			return
		}
		c.write(w, ok(build(spec)))
	}
}

// change decodes a strict JSON body and applies it.
func change[T any](c *Cloud, apply func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body T
		decoder := json.NewDecoder(io.LimitReader(r.Body, maxBody))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&body)
		if err == nil {
			err = apply(body)
		}
		switch {
		case errors.Is(err, ErrNotFound):
			c.write(w, problem(http.StatusNotFound, err.Error()))
		case err != nil:
			c.write(w, problem(http.StatusBadRequest, err.Error()))
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}
