// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// K3sSHA256 is the checksum of the program k3s that servers download here.
var K3sSHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(k3sProgram)))

// computer is what runs user data: a real shell over files that exist only here and over programs of which only those are
// more than a name that join a cluster.
type computer struct {
	server cloud.Server
	files  map[string][]byte
	// joins are the calls of programs that join a cluster, in their order.
	joins []joinCall
	depth int
}

// joinCall is a call of bootstrap.sh, kubeadm join or k3s agent.
type joinCall struct {
	program string // bke, kubeadm or k3s
	args    []string
	env     map[string]string
}

const (
	// bootTimeout bounds what user data may take here; scripts wait for nothing here.
	bootTimeout = 5 * time.Second
	maxDepth    = 8

	k3sInstaller = "#!/bin/sh\n# the installer of k3s\n"
	// k3sProgram is every release of k3s here.
	k3sProgram   = "the program k3s\n"
	metadataHost = "169.254.169.254"
)

// boot runs user data as cloud-init does: boot hooks, files, scripts in their order, and the commands of cloud-config last.
func (c *computer) boot(ctx context.Context, userData string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	parts, err := userDataParts(userData)
	if err != nil {
		return err
	}
	config, err := mergedConfig(parts)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if part.contentType == typeBootHook {
			c.script(ctx, part.text, nil, nil)
		}
	}
	c.script(ctx, commands(config.BootCmd), nil, nil)
	for _, file := range config.WriteFiles {
		content := []byte(file.Content)
		if file.Encoding == "b64" || file.Encoding == "base64" {
			if content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
				return fmt.Errorf("write_files: %s is not base64", file.Path)
			}
		}
		if file.Append {
			content = append(bytes.Clone(c.files[file.Path]), content...)
		}
		c.files[file.Path] = content
	}
	for _, part := range parts {
		if part.contentType == typeShellScript {
			c.script(ctx, part.text, nil, nil)
		}
	}
	c.script(ctx, commands(config.RunCmd), nil, nil)
	return nil
}

// script runs a shell script. A failure has no effect, as with cloud-init, whose machine then just does
// not join.
func (c *computer) script(ctx context.Context, text string, args []string, env expand.Environ) {
	if c.depth >= maxDepth || strings.TrimSpace(text) == "" {
		return
	}
	c.depth++
	defer func() { c.depth-- }()
	parsed, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "user-data")
	if err != nil {
		return
	}
	if env == nil {
		env = expand.ListEnviron("PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root", "HOSTNAME="+c.server.Name)
	}
	runner, err := interp.New(
		interp.Env(env), interp.Params(append([]string{"--"}, args...)...), interp.StdIO(nil, io.Discard, io.Discard),
		interp.OpenHandler(c.open), interp.StatHandler(c.stat),
		interp.ReadDirHandler2(func(context.Context, string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist }),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return c.exec }),
	)
	if err != nil {
		return
	}
	_ = runner.Run(ctx, parsed)
}

// virtual is an open file.
type virtual struct {
	bytes.Buffer
	close func([]byte)
}

// Close implements io.Closer.
func (v *virtual) Close() error {
	if v.close != nil {
		v.close(v.Bytes())
	}
	return nil
}

func (c *computer) open(_ context.Context, name string, flag int, _ os.FileMode) (io.ReadWriteCloser, error) {
	file := &virtual{}
	if name == os.DevNull {
		return file, nil
	}
	content, exists := c.read(name)
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		if !exists {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		file.Write(content)
		return file, nil
	}
	if flag&os.O_APPEND != 0 {
		file.Write(content)
	}
	file.close = func(written []byte) { c.files[path.Clean(name)] = bytes.Clone(written) }
	return file, nil
}

func (c *computer) read(name string) ([]byte, bool) {
	if name == "/sys/class/dmi/id/product_uuid" {
		return []byte(strings.ToUpper(c.server.ID) + "\n"), true
	}
	content, exists := c.files[path.Clean(name)]
	return content, exists
}

type fileInfo struct {
	name string
	size int64
}

func (i fileInfo) Name() string     { return i.name }
func (i fileInfo) Size() int64      { return i.size }
func (fileInfo) Mode() fs.FileMode  { return 0o755 }
func (fileInfo) ModTime() time.Time { return time.Time{} }
func (fileInfo) IsDir() bool        { return false }
func (fileInfo) Sys() any           { return nil }

func (c *computer) stat(_ context.Context, name string, _ bool) (fs.FileInfo, error) {
	if content, exists := c.read(name); exists {
		return fileInfo{path.Base(name), int64(len(content))}, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// programs are those that do more here than succeed.
var programs map[string]func(*computer, context.Context, []string, interp.HandlerContext) error

func init() {
	again := func(c *computer, ctx context.Context, args []string, _ interp.HandlerContext) error {
		return c.exec(ctx, args[1:])
	}
	fetch := func(c *computer, _ context.Context, args []string, handler interp.HandlerContext) error {
		if i := slices.Index(args, "-o"); i > 0 && i+1 < len(args) {
			c.files[path.Clean(args[i+1])] = []byte(c.fetch(args))
			return nil
		}
		_, err := io.WriteString(handler.Stdout, c.fetch(args))
		return err
	}
	programs = map[string]func(*computer, context.Context, []string, interp.HandlerContext) error{
		"sudo": again, "nohup": again, "setsid": again, "curl": fetch, "wget": fetch,
		"env": func(c *computer, ctx context.Context, args []string, _ interp.HandlerContext) error {
			return c.execEnv(ctx, args[1:])
		},
		"bash": (*computer).shell, "sh": (*computer).shell,
		"kubeadm": (*computer).join, "k3s": (*computer).join,
		"cat": (*computer).cat, "tee": (*computer).tee, "systemctl": (*computer).systemctl, "sha256sum": (*computer).sha256sum,
		"hostname": func(c *computer, _ context.Context, _ []string, handler interp.HandlerContext) error {
			_, err := io.WriteString(handler.Stdout, c.server.Name+"\n")
			return err
		},
	}
	for name := range filters {
		if _, known := programs[name]; !known {
			programs[name] = (*computer).filter
		}
	}
}

// filterArguments are the arguments of a program that only work on what is piped into it.
type filterArguments struct {
	// flags have no value, and valued flags have one.
	flags, valued string
	// operands is how many operands come before files. The value of a flag e takes their place.
	operands int
}

// filters are the programs of this machine that user data may run, with the arguments that name no file and run no command.
var filters = map[string]filterArguments{
	"sed": {"Enrsz", "e", 1}, "grep": {"EFachinoqsvwx", "eABCm", 1}, "tr": {"Ccdst", "", 2}, "cut": {"s", "bcdf", 0},
	"head": {"qz0123456789", "cn", 0}, "tail": {"qz0123456789", "cn", 0}, "base64": {"di", "w", 0}, "sha256sum": {"bt", "", 0},
}

// allow reports whether none of the arguments names a file or is unknown. Flags may come after operands, as GNU's programs read them.
func (f filterArguments) allow(args []string) bool {
	var operands []string
	before := f.operands
	for i := 0; i < len(args); i++ {
		letters, flag := strings.CutPrefix(args[i], "-")
		if !flag || letters == "" {
			operands = append(operands, args[i])
			continue
		}
		letters = strings.TrimLeft(letters, f.flags)
		if letters == "" {
			continue
		}
		if !strings.Contains(f.valued, letters[:1]) {
			return false
		}
		if letters[0] == 'e' {
			before = 0
		}
		if len(letters) == 1 {
			i++ // its value is the next argument
		}
	}
	return !slices.ContainsFunc(operands[min(before, len(operands)):], func(operand string) bool { return operand != "-" })
}

// exec runs a program. One that is not known succeeds: packages are installed and services started without an effect here.
func (c *computer) exec(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return nil
	}
	handler := interp.HandlerCtx(ctx)
	if args[0] == bootstrapScript {
		c.joins = append(c.joins, joinCall{program: "bke"})
		return nil
	}
	if program, known := programs[path.Base(args[0])]; known {
		return program(c, ctx, args, handler)
	}
	if content, exists := c.read(args[0]); exists {
		c.script(ctx, string(content), args[1:], handler.Env)
	}
	return nil
}

// join is kubeadm join and k3s agent; what else these can do does not matter here.
func (c *computer) join(_ context.Context, args []string, handler interp.HandlerContext) error {
	program := path.Base(args[0])
	if len(args) > 1 && args[1] == map[string]string{"kubeadm": "join", "k3s": "agent"}[program] {
		c.joins = append(c.joins, joinCall{program: program, args: args[2:], env: variables(handler.Env)})
	}
	return nil
}

func (c *computer) execEnv(ctx context.Context, args []string) error {
	for len(args) > 0 && strings.Contains(args[0], "=") {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	return c.exec(ctx, args)
}

// shell is bash -c script, bash file and ... | bash -s - arguments.
func (c *computer) shell(ctx context.Context, args []string, handler interp.HandlerContext) error {
	args, script := shellArguments(args[1:])
	if script != "" {
		c.script(ctx, script, args, handler.Env)
		return nil
	}
	if len(args) > 0 {
		if content, exists := c.read(args[0]); exists {
			c.script(ctx, string(content), args[1:], handler.Env)
			return nil
		}
	}
	text, err := readAll(handler.Stdin)
	if err != nil {
		return err
	}
	if string(text) == k3sInstaller {
		c.installK3s(args, variables(handler.Env))
		return nil
	}
	c.script(ctx, string(text), args, handler.Env)
	return nil
}

// shellArguments takes the flags off and returns the script of -c.
func shellArguments(args []string) (rest []string, script string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		flag := args[0]
		args = args[1:]
		if strings.HasSuffix(flag, "c") && len(args) > 0 {
			return args[1:], args[0]
		}
		if flag == "-" || flag == "--" {
			break
		}
	}
	return args, ""
}

// installK3s is k3s's installer: it starts a server unless its arguments name one, or make it an agent.
func (c *computer) installK3s(args []string, env map[string]string) {
	if len(args) > 0 && args[0] == "agent" {
		args = args[1:]
	} else if env["K3S_URL"] == "" {
		return
	}
	c.joins = append(c.joins, joinCall{program: "k3s", args: args, env: env})
}

// fetch is what a server gets from where it asks: its own metadata, and the installer of k3s.
func (c *computer) fetch(args []string) string {
	for _, arg := range args {
		switch {
		case strings.Contains(arg, metadataHost+"/openstack/latest/meta_data.json"):
			return fmt.Sprintf(`{"random_seed": "c2FuZGJveA==", "uuid": %q, "availability_zone": %q, "hostname": "%s.novalocal", "name": %q}`,
				c.server.ID, c.server.AvailabilityZone, c.server.Name, c.server.Name)
		case strings.HasPrefix(arg, "https://get.k3s.io"):
			return k3sInstaller
		case strings.HasPrefix(arg, "https://github.com/k3s-io/k3s/releases/download/"):
			return k3sProgram
		}
	}
	return ""
}

func (c *computer) cat(_ context.Context, args []string, handler interp.HandlerContext) error {
	names := args[1:]
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		content, exists := c.read(name)
		if name == "-" {
			var err error
			if content, err = readAll(handler.Stdin); err != nil {
				return err
			}
		} else if !exists {
			return interp.ExitStatus(1)
		}
		if _, err := handler.Stdout.Write(content); err != nil {
			return err
		}
	}
	return nil
}

func (c *computer) tee(_ context.Context, args []string, handler interp.HandlerContext) error {
	content, err := readAll(handler.Stdin)
	if err != nil {
		return err
	}
	appends := len(args) > 1 && args[1] == "-a"
	for _, name := range args[1:] {
		if strings.HasPrefix(name, "-") {
			continue
		}
		written := content
		if appends {
			written = append(bytes.Clone(c.files[path.Clean(name)]), content...)
		}
		c.files[path.Clean(name)] = written
	}
	_, err = handler.Stdout.Write(content)
	return err
}

// systemctl starts services whose units user data has written; of others, nothing depends here.
func (c *computer) systemctl(ctx context.Context, args []string, handler interp.HandlerContext) error {
	if len(args) < 2 || args[1] != "start" && args[1] != "restart" && (args[1] != "enable" || !slices.Contains(args, "--now")) {
		return nil
	}
	for _, name := range args[2:] {
		content, _ := c.read("/etc/systemd/system/" + strings.TrimSuffix(name, ".service") + ".service")
		for line := range strings.Lines(string(content)) {
			if command, starts := strings.CutPrefix(line, "ExecStart="); starts {
				c.script(ctx, command, nil, handler.Env)
			}
		}
	}
	return nil
}

// sha256sum is the filter, or checks files of this computer.
func (c *computer) sha256sum(ctx context.Context, args []string, handler interp.HandlerContext) error {
	if !slices.Contains(args, "-c") {
		return c.filter(ctx, args, handler)
	}
	list, err := readAll(handler.Stdin)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, exists := c.read(name)
		if !exists || fmt.Sprintf("%x", sha256.Sum256(content)) != sum {
			return interp.ExitStatus(1)
		}
	}
	return nil
}

// filter runs a program of this machine on what is piped into it. User data must reach neither files nor other programs of this machine.
func (c *computer) filter(ctx context.Context, args []string, handler interp.HandlerContext) error {
	name, args := path.Base(args[0]), args[1:]
	if !filters[name].allow(args) {
		return interp.ExitStatus(1)
	}
	if name == "sed" {
		args = append([]string{"--sandbox"}, args...) // or its scripts could read and write files, and run commands
	}
	input, err := readAll(handler.Stdin)
	if err != nil {
		return err
	}
	empty, err := os.MkdirTemp("", "bizfly-sandbox-filter-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(empty) }()
	command := exec.CommandContext(ctx, name, args...) //nolint:gosec // one of filters, without a file
	command.Stdin, command.Stdout, command.Dir, command.Env = bytes.NewReader(input), handler.Stdout, empty, []string{"PATH=" + os.Getenv("PATH")}
	var failed *exec.ExitError
	if err := command.Run(); errors.As(err, &failed) {
		return interp.ExitStatus(uint8(failed.ExitCode())) //nolint:gosec // an exit status is a byte
	} else if err != nil {
		return interp.ExitStatus(127)
	}
	return nil
}

func readAll(stdin io.Reader) ([]byte, error) {
	if stdin == nil {
		return nil, nil
	}
	content, err := io.ReadAll(io.LimitReader(stdin, 1<<20))
	if errors.Is(err, os.ErrInvalid) {
		return nil, nil // nothing is piped into it
	}
	return content, err
}

func variables(env expand.Environ) map[string]string {
	all := map[string]string{}
	env.Each(func(name string, value expand.Variable) bool {
		all[name] = value.String()
		return true
	})
	return all
}
