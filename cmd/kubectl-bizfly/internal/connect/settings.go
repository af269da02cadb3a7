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
	"strings"
	"sync"

	"github.com/samber/lo"
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
// the same overhead, prices and policies. What the plugin's own environment sets wins.
//
// A Deployment is no authority: who may create one in any namespace is not trusted with the credentials of the user who runs the plugin.
// Only keys of the tables of settings are read from it, its Secret is looked for in its own namespace, and its endpoint is used with no
// other credentials than those of that namespace.
func (s *Session) settings(ctx context.Context) error {
	s.namespace = lo.CoalesceOrEmpty(s.namespace, os.Getenv(namespaceVariable))
	variables, args := map[string]string{}, []string(nil)
	if s.Cluster != nil {
		if err := s.findDeployment(ctx); err != nil {
			return err
		}
	}
	namespace := s.namespace
	if s.Deployment != nil {
		namespace = s.Deployment.Namespace
		container, ok := lo.Find(s.Deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "controller" })
		if ok {
			variables, args = s.variables(ctx, &container), container.Args
		}
	}
	var foreign []string
	if anyCredential() {
		foreign = endpointVariables
	}
	method := ownCredentials()
	if method != "" {
		foreign = slices.Concat(endpointVariables, credentialVariables, []string{methodVariable})
	}
	defer s.unsetInvalid()()
	restore := setMissing(lo.Assign(lo.OmitByKeys(variables, foreign), lo.OmitByValues(map[string]string{methodVariable: method}, []string{""})))
	defer restore()
	variableOf := lo.SliceToMap(options.Table(), func(setting *options.Setting) (string, string) { return setting.Flag, setting.Variable })
	if err := s.parse(args, func(flag string) bool {
		return variableOf[flag] == namespaceVariable || lo.Contains(foreign, variableOf[flag])
	}); err != nil {
		return err
	}
	s.Settings.Namespace = lo.CoalesceOrEmpty(namespace, s.Settings.Namespace)
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

// anyCredential reports whether the plugin's environment has any, complete or not.
func anyCredential() bool { return lo.SomeBy(credentialVariables, isSet) }

// ownCredentials returns how to log in with those of the plugin's environment; empty where they are not complete.
func ownCredentials() string {
	switch {
	case lo.EveryBy(credentialVariables[:2], isSet):
		return bizfly.AuthMethodAppCredential
	case lo.EveryBy(credentialVariables[2:], isSet):
		return bizfly.AuthMethodPassword
	}
	return ""
}

func isSet(variable string) bool { return os.Getenv(variable) != "" }

// unsetInvalid unsets variables of the shell that have a name as other programs use, too, and that core cannot parse, so that the Deployment's
// apply. It returns what sets them again.
func (s *Session) unsetInvalid() (restore func()) {
	_, gates := coreoptions.ParseFeatureGates(os.Getenv("FEATURE_GATES"))
	_, scheduler := coreoptions.ParseSchedulerConfiguration(os.Getenv("SCHEDULER_CONFIG"))
	unset := map[string]string{}
	for _, parsed := range []lo.Tuple2[string, error]{{A: "FEATURE_GATES", B: gates}, {A: "SCHEDULER_CONFIG", B: scheduler}} {
		name, raw := parsed.A, os.Getenv(parsed.A)
		if parsed.B != nil && os.Unsetenv(name) == nil {
			unset[name] = raw
			s.Note("%s of your shell is not used: Karpenter cannot parse it: %s", name, parsed.B)
		}
	}
	return func() {
		for name, raw := range unset {
			_ = os.Setenv(name, raw)
		}
	}
}

// parse reads the settings from the environment and from arguments of the controller, but for flags that are skipped.
func (s *Session) parse(args []string, skipped func(flag string) bool) error {
	s.Core, s.Settings = &coreoptions.Options{}, &options.Options{}
	fs := flags(s.Core)
	s.Settings.AddFlags(fs)
	// The level of the log concerns no answer, and LOG_LEVEL of the shell may be another program's.
	kept, valued := []string{"--log-level=info"}, false
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			if valued {
				kept = append(kept, arg)
			}
			valued = false
			continue
		}
		// Flags of other packages, such as those of the log, are skipped one by one: they concern no answer of the plugin.
		name := flagName(arg)
		known := fs.Lookup(name)
		if valued = false; known == nil || skipped(name) {
			continue
		}
		kept = append(kept, arg)
		boolean, _ := known.Value.(interface{ IsBoolFlag() bool })
		valued = !strings.Contains(arg, "=") && (boolean == nil || !boolean.IsBoolFlag())
	}
	if err := s.Core.Parse(fs, kept...); err != nil {
		return fmt.Errorf("parsing the settings of the controller: %w", err)
	}
	// Core's provisioner waits without a bound for the allocated devices, which only a controller over a real cluster fills in.
	if !s.Core.IgnoreDRARequests {
		s.Core.IgnoreDRARequests = true
		s.Note("IGNORE_DRA_REQUESTS=false is computed as true: devices of nodes that exist are not counted, so no pod with resourceClaims gets a place")
	}
	s.Settings.ClusterName = lo.CoalesceOrEmpty(s.Settings.ClusterName, "unknown")
	if err := s.Settings.Validate(); err != nil {
		return fmt.Errorf("checking the settings of the controller: %w", err)
	}
	return nil
}

// flags are core's.
func flags(core *coreoptions.Options) *coreoptions.FlagSet {
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("controller", flag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	core.AddFlags(fs)
	return fs
}

// settingVariables are the variables of the tables of settings, core's and ours. Core's flags and variables have the same names.
var settingVariables = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	flags(&coreoptions.Options{}).VisitAll(func(f *flag.Flag) { names[strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = true })
	for _, setting := range options.Table() {
		names[setting.Variable] = setting.Variable != namespaceVariable
	}
	return names
})

// flagName returns the name of a flag as it is written on a command line.
func flagName(arg string) string {
	name := arg
	for len(name) > 0 && name[0] == '-' {
		name = name[1:]
	}
	if i := slices.Index([]byte(name), '='); i >= 0 {
		return name[:i]
	}
	return name
}

// Context carries the settings as the code of the controller expects them.
func (s *Session) Context(ctx context.Context) context.Context {
	return s.Settings.ToContext(s.Core.ToContext(ctx))
}

// SeveralControllersError says that the controller cannot be told from other Deployments with its label.
type SeveralControllersError struct {
	// Found are the Deployments, as namespace and name.
	Found []string
}

// Error names the Deployments and the flag.
func (e *SeveralControllersError) Error() string {
	return fmt.Sprintf("%d Deployments have the label app.kubernetes.io/name=%s (%s), and settings are read from the controller alone: name its namespace with "+
		"--controller-namespace, and delete the others if you do not know them", len(e.Found), operator.Name, strings.Join(e.Found, ", "))
}

// findDeployment finds the controller by the label that its chart gives it.
func (s *Session) findDeployment(ctx context.Context) error {
	const unknown = "the controller's settings are not known, so the defaults are assumed: %s"
	deployments := &appsv1.DeploymentList{}
	s.DeploymentErr = s.List(ctx, deployments, client.MatchingLabels{"app.kubernetes.io/name": operator.Name}, client.InNamespace(s.namespace))
	switch found := deployments.Items; {
	case s.DeploymentErr != nil:
		s.Note(unknown, s.DeploymentErr)
	case len(found) == 0:
		s.Note(unknown, "no Deployment has the label app.kubernetes.io/name="+operator.Name)
	case len(found) > 1:
		return &SeveralControllersError{Found: lo.Map(found, func(d appsv1.Deployment, _ int) string { return d.Namespace + "/" + d.Name })}
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
			if os.Getenv(variable.Name) != "" {
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

// setMissing sets environment variables that are not set, and returns what unsets them again: the packages that parse
// settings read the process's environment.
func setMissing(variables map[string]string) (restore func()) {
	var set []string
	for name, value := range variables {
		if _, given := os.LookupEnv(name); !given && os.Setenv(name, value) == nil {
			set = append(set, name)
		}
	}
	return func() {
		for _, name := range set {
			_ = os.Unsetenv(name)
		}
	}
}
