// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hierarchy is one of the control groups' file systems: several of version 1, or one of version 2.
type hierarchy struct {
	mount, kind, options string
	base                 string // the path of our group in it
}

// group is where a machine is in one hierarchy, and how that is mounted again inside of it.
type group struct {
	Path, Mount, Kind, Options string
}

// hierarchies finds those of this machine, and makes our group in each.
func hierarchies(base string) ([]hierarchy, error) {
	content, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != "cgroup" && fields[2] != "cgroup2" || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		h := hierarchy{mount: fields[1], kind: fields[2], base: filepath.Join(fields[1], base)}
		if h.kind == "cgroup" {
			h.options = filepath.Base(h.mount) // its controllers
			if h.options == "systemd" {
				h.options = "none,name=systemd"
			}
		}
		if err := h.delegate(base); err != nil {
			return nil, err
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, errors.New("no control groups are mounted below /sys/fs/cgroup")
	}
	return found, nil
}

// delegate makes a group, and those above it, such that a group below it can be a whole machine's.
func (h hierarchy) delegate(path string) error {
	above := h.mount
	for _, name := range strings.Split(path, "/") {
		if h.kind == "cgroup2" {
			// Each by itself: one that is missing here must not keep the others away.
			for _, controller := range []string{"cpu", "cpuset", "io", "memory", "pids"} {
				_ = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+"+controller), 0)
			}
		}
		group := filepath.Join(above, name)
		if err := os.MkdirAll(group, 0o755); err != nil { //nolint:gosec // control groups are no secret
			return fmt.Errorf("making a control group: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if h.kind != "cgroup" {
				break
			}
			// A group of version 1 without these takes no process.
			if value, err := os.ReadFile(filepath.Join(above, file)); err == nil { //nolint:gosec // a control group of ours
				if err := os.WriteFile(filepath.Join(group, file), value, 0); err != nil {
					return fmt.Errorf("filling a control group: %w", err)
				}
			}
		}
		above = group
	}
	return nil
}

// create makes the group of a machine that may use so much memory.
func (h hierarchy) create(id string, memory int64) (group, error) {
	relative, err := filepath.Rel(h.mount, filepath.Join(h.base, id))
	if err != nil {
		return group{}, err
	}
	if err := h.delegate(relative); err != nil {
		return group{}, err
	}
	path := filepath.Join(h.base, id)
	for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
		limit := filepath.Join(path, file)
		if _, err := os.Stat(limit); err != nil {
			continue
		}
		if err := os.WriteFile(limit, []byte(strconv.FormatInt(memory, 10)), 0); err != nil {
			return group{}, fmt.Errorf("limiting the memory of a machine: %w", err)
		}
	}
	return group{Path: path, Mount: h.mount, Kind: h.kind, Options: h.options}, nil
}

// remove removes the group of a machine, or all with an empty id. The kernel still counts processes in it for a moment after their end.
func (h hierarchy) remove(id string) {
	root := filepath.Join(h.base, id)
	for range 50 {
		var groups []string
		_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		slices.Reverse(groups) // children before their parents
		left := false
		for _, path := range groups {
			left = os.Remove(path) != nil || left
		}
		if !left {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if id == "" {
		_ = os.Remove(filepath.Dir(root)) // shared with other sandboxes: the last one removes it
	}
}
