// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/samber/lo"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// settings finds the controller in the cluster and parses the settings that it runs with, so that the plugin computes with
// the same overhead, prices and policies. What the plugin's own flags and environment set wins.
//
// A Deployment is no authority: who may create one in any namespace is not trusted with the credentials of the user who runs the plugin.
// Only keys of the tables of settings are read from it, its Secret is looked for in its own namespace, and its endpoint is used with no
// other credentials than those of that namespace.
func (s *Session) settings(ctx context.Context) error {
	if err := s.readCredentials(); err != nil {
		return err
	}
	s.options.ControllerNamespace = lo.CoalesceOrEmpty(s.options.ControllerNamespace, os.Getenv(namespaceVariable))
	variables, args := map[string]string{}, []string(nil)
	if s.Cluster != nil {
		if err := s.findDeployment(ctx); err != nil {
			return err
		}
	}
	namespace := s.options.ControllerNamespace
	if s.Deployment != nil {
		namespace = s.Deployment.Namespace
		container, ok := lo.Find(s.Deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "controller" })
		if ok {
			variables, args = s.variables(ctx, &container), container.Args
		}
	}
	foreign := []string{namespaceVariable}
	if s.anyCredential() {
		foreign = append(foreign, endpointVariables...)
	}
	method := s.ownMethod()
	if method != "" {
		foreign = slices.Concat(foreign, credentialVariables, []string{methodVariable})
	}
	if err := s.parse(lo.OmitByKeys(variables, foreign), args, foreign); err != nil {
		return err
	}
	s.Settings.Namespace = lo.CoalesceOrEmpty(namespace, s.Settings.Namespace)
	if _, chosen := os.LookupEnv(methodVariable); method != "" && !chosen {
		s.Settings.AuthMethod = method
	}
	return nil
}

const (
	namespaceVariable = "SYSTEM_NAMESPACE"
	// methodVariable says which credentials are used.
	methodVariable = "BIZFLY_CLOUD_AUTH_METHOD"
)

var (
	// credentialVariables are the user's own credentials, where the plugin's environment has them.
	credentialVariables = []string{"BIZFLY_CLOUD_APP_CRED_ID", "BIZFLY_CLOUD_APP_CRED_SECRET", "BIZFLY_CLOUD_EMAIL", "BIZFLY_CLOUD_PASSWORD"}
	// endpointVariables say where credentials are sent.
	endpointVariables = []string{"BIZFLY_CLOUD_API_URL", "BIZFLY_CLOUD_ALLOW_HTTP", "BIZFLY_CLOUD_ALLOWED_HOSTS"}
)

// readCredentials reads the user's own credentials: files that flags name, or else the environment.
func (s *Session) readCredentials() error {
	s.own = lo.SliceToMap(credentialVariables, func(variable string) (string, string) { return variable, os.Getenv(variable) })
	for i, path := range []string{s.options.IDFile, s.options.SecretFile} {
		if path == "" {
			continue
		}
		content, err := os.ReadFile(path) //nolint:gosec // the user names it
		if err != nil {
			return fmt.Errorf("reading the credentials: %w", err)
		}
		s.own[credentialVariables[i]] = strings.TrimSpace(string(content))
	}
	return nil
}

// anyCredential reports whether the user has given any, complete or not.
func (s *Session) anyCredential() bool { return len(lo.Compact(lo.Values(s.own))) > 0 }

// ownMethod returns how to log in with those of the user; empty where they are not complete.
func (s *Session) ownMethod() string {
	given := func(variable string) bool { return s.own[variable] != "" }
	switch {
	case lo.EveryBy(credentialVariables[:2], given):
		return bizfly.AuthMethodAppCredential
	case lo.EveryBy(credentialVariables[2:], given):
		return bizfly.AuthMethodPassword
	}
	return ""
}

// setFlags sets the flags of core to the controller's variables, where the shell has none of that name.
func (s *Session) setFlags(fs *coreoptions.FlagSet, variables map[string]string) {
	fs.VisitAll(func(f *flag.Flag) {
		name := variableOf(f.Name)
		raw, set := os.LookupEnv(name)
		if s.invalid(name, raw) {
			_, set = fs.Set(f.Name, ""), false // other programs use the name, too
		}
		if value, given := variables[name]; given && !set {
			if truth, err := strconv.ParseBool(value); err == nil && isBool(f) {
				value = strconv.FormatBool(truth)
			}
			_ = fs.Set(f.Name, value) // as core does, which takes the default in place of a variable that it cannot parse
		}
	})
}

// parse reads the settings from the plugin's own flags and environment, and what these do not set from the variables and arguments of the controller, but
// for what is foreign.
func (s *Session) parse(variables map[string]string, args, foreign []string) error {
	s.Core, s.Settings = &coreoptions.Options{}, &options.Options{}
	fs := flags(s.Core)
	s.setFlags(fs, variables)
	s.Settings.AddFlags(fs)
	for _, setting := range options.Table() {
		raw := variables[setting.Variable]
		if _, set := os.LookupEnv(setting.Variable); set || raw == "" {
			continue
		}
		if err := setting.Apply(s.Settings, raw); err != nil {
			return fmt.Errorf("the controller's %s: %w", setting.Variable, err)
		}
	}
	err := parseArguments(fs, args, foreign)
	if err == nil {
		// The level of the log concerns no answer, and LOG_LEVEL of the shell may be another program's.
		err = s.Core.Parse(fs, "--log-level=info")
	}
	if err != nil {
		return fmt.Errorf("parsing the settings of the controller: %w", err)
	}
	// Core's provisioner waits without a bound for the allocated devices, which only a controller over a real cluster fills in.
	if !s.Core.IgnoreDRARequests {
		s.Core.IgnoreDRARequests = true
		s.Note("IGNORE_DRA_REQUESTS=false is computed as true: devices of nodes that exist are not counted, so no pod with resourceClaims gets a place")
	}
	s.Settings.ClusterName = lo.CoalesceOrEmpty(s.Settings.ClusterName, "unknown")
	s.Settings.Region = lo.CoalesceOrEmpty(s.options.Region, s.Settings.Region)
	if s.options.IDFile != "" || s.options.SecretFile != "" {
		s.Settings.AppCredID, s.Settings.AppCredSecret = s.own[credentialVariables[0]], s.own[credentialVariables[1]]
	}
	if err := s.Settings.Validate(); err != nil {
		return fmt.Errorf("checking the settings of the controller: %w", err)
	}
	return nil
}

// parseArguments sets the flags of the settings that the controller's arguments have, but for what is foreign. Flags of
// other packages, such as those of the log, are ignored.
func parseArguments(fs *coreoptions.FlagSet, args, foreign []string) error {
	variables := lo.SliceToMap(options.Table(), func(setting *options.Setting) (string, string) {
		return setting.Flag, setting.Variable
	})
	known := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	known.ParseErrorsAllowlist.UnknownFlags = true
	fs.VisitAll(func(f *flag.Flag) {
		if !lo.Contains(foreign, variables[f.Name]) {
			known.AddGoFlag(f)
		}
	})
	return known.Parse(lo.Map(args, func(arg string, _ int) string {
		// The controller takes one dash for two.
		return lo.Ternary(strings.HasPrefix(arg, "-"), "--"+strings.TrimLeft(arg, "-"), arg)
	}))
}

// invalid reports whether a variable of the shell is one that other programs have, too, and that core cannot parse.
func (s *Session) invalid(name, raw string) bool {
	var err error
	switch name {
	case "FEATURE_GATES":
		_, err = coreoptions.ParseFeatureGates(raw)
	case "SCHEDULER_CONFIG":
		_, err = coreoptions.ParseSchedulerConfiguration(raw)
	}
	if err != nil {
		s.Note("%s of your shell is not used: Karpenter cannot parse it: %s", name, err)
	}
	return err != nil
}

// flags are core's.
func flags(core *coreoptions.Options) *coreoptions.FlagSet {
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("controller", flag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	core.AddFlags(fs)
	return fs
}

// variableOf is the variable of a flag of core.
func variableOf(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

func isBool(f *flag.Flag) bool {
	boolean, _ := f.Value.(interface{ IsBoolFlag() bool })
	return boolean != nil && boolean.IsBoolFlag()
}

// settingVariables are the variables of the tables of settings, core's and ours.
var settingVariables = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	flags(&coreoptions.Options{}).VisitAll(func(f *flag.Flag) { names[variableOf(f.Name)] = true })
	for _, setting := range options.Table() {
		names[setting.Variable] = setting.Variable != namespaceVariable
	}
	return names
})

// Context carries the settings as the code of the controller expects them.
func (s *Session) Context(ctx context.Context) context.Context {
	return s.Settings.ToContext(s.Core.ToContext(ctx))
}

// findDeployment finds the controller by the label that its chart gives it.
func (s *Session) findDeployment(ctx context.Context) error {
	const unknown = "the controller's settings are not known, so the defaults are assumed: %s"
	deployments := &appsv1.DeploymentList{}
	s.DeploymentErr = s.List(ctx, deployments, client.MatchingLabels{"app.kubernetes.io/name": operator.Name},
		client.InNamespace(s.options.ControllerNamespace))
	switch found := deployments.Items; {
	case s.DeploymentErr != nil:
		s.Note(unknown, s.DeploymentErr)
	case len(found) == 0:
		s.Note(unknown, "no Deployment has the label app.kubernetes.io/name="+operator.Name)
	case len(found) > 1:
		names := lo.Map(found, func(d appsv1.Deployment, _ int) string { return d.Namespace + "/" + d.Name })
		return fmt.Errorf("%d Deployments have the label app.kubernetes.io/name=%s (%s), and settings are read from the controller "+
			"alone: name its namespace with --controller-namespace, and delete the others if you do not know them", len(found),
			operator.Name, strings.Join(names, ", "))
	default:
		s.Deployment = &found[0]
	}
	return nil
}

// variables returns the settings in the environment of the container. A Secret that may not be read is noted and left out.
func (s *Session) variables(ctx context.Context, container *corev1.Container) map[string]string {
	found, secrets := map[string]string{}, map[string]*corev1.Secret{}
	for _, variable := range container.Env {
		from := variable.ValueFrom
		switch {
		case !settingVariables()[variable.Name]:
		case from == nil:
			found[variable.Name] = variable.Value
		case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "requests.cpu":
			found[variable.Name] = fmt.Sprint(lo.ToPtr(container.Resources.Requests[corev1.ResourceCPU]).ScaledValue(resource.Milli))
		case from.SecretKeyRef != nil:
			if lo.CoalesceOrEmpty(os.Getenv(variable.Name), s.own[variable.Name]) != "" {
				continue
			}
			secret, known := secrets[from.SecretKeyRef.Name]
			if !known {
				secret = &corev1.Secret{}
				if err := s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: from.SecretKeyRef.Name}, secret); err != nil {
					s.Note("the controller's credentials are not used: reading the Secret %s/%s: %s", s.Deployment.Namespace, from.SecretKeyRef.Name, err)
				}
				secrets[from.SecretKeyRef.Name] = secret
			}
			if value, ok := secret.Data[from.SecretKeyRef.Key]; ok {
				found[variable.Name] = string(value)
			}
		}
	}
	return found
}
