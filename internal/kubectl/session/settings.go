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

package session

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// settings finds the controller in the cluster and parses the settings that it runs with, so that the plugin computes with
// the same overhead, prices and policies. What the plugin's own environment sets wins.
func (s *Session) settings(ctx context.Context) error {
	variables, args := map[string]string{}, []string(nil)
	if s.Cluster != nil {
		s.findDeployment(ctx)
	}
	if s.Deployment != nil {
		container, ok := lo.Find(s.Deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "controller" })
		if ok {
			variables, args = s.variables(ctx, &container), container.Args
		}
	}
	restore := setMissing(variables)
	defer restore()
	return s.parse(args)
}

// parse reads the settings from the environment and from arguments of the controller.
func (s *Session) parse(args []string) error {
	s.Core, s.Settings = &coreoptions.Options{}, &options.Options{}
	// Flags of other packages, such as those of the log, are skipped one by one: they concern no answer of the plugin.
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("controller", flag.ContinueOnError)}
	fs.SetOutput(discard{})
	s.Core.AddFlags(fs)
	s.Settings.AddFlags(fs)
	args = lo.Filter(args, func(arg string, _ int) bool { return fs.Lookup(flagName(arg)) != nil })
	if err := s.Core.Parse(fs, args...); err != nil {
		return fmt.Errorf("parsing the settings of the controller: %w", err)
	}
	s.Settings.ClusterName = lo.CoalesceOrEmpty(s.Settings.ClusterName, "unknown")
	if err := s.Settings.Validate(); err != nil {
		return fmt.Errorf("checking the settings of the controller: %w", err)
	}
	return nil
}

type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

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

// findDeployment finds the controller by the label that its chart gives it.
func (s *Session) findDeployment(ctx context.Context) {
	const unknown = "the controller's settings are not known, so the defaults are assumed: %s"
	deployments := &appsv1.DeploymentList{}
	if s.DeploymentErr = s.List(ctx, deployments, client.MatchingLabels{"app.kubernetes.io/name": operator.Name}); s.DeploymentErr != nil {
		s.Note(unknown, s.DeploymentErr)
		return
	}
	if len(deployments.Items) == 0 {
		s.Note(unknown, "no Deployment has the label app.kubernetes.io/name="+operator.Name)
		return
	}
	if len(deployments.Items) > 1 {
		s.Note("%d Deployments have the label app.kubernetes.io/name=%s; the settings are those of %s", len(deployments.Items), operator.Name,
			client.ObjectKeyFromObject(&deployments.Items[0]))
	}
	s.Deployment = &deployments.Items[0]
}

// variables returns the environment of the container. A Secret that may not be read is noted and left out.
func (s *Session) variables(ctx context.Context, container *corev1.Container) map[string]string {
	found, secrets := map[string]string{}, map[string]*corev1.Secret{}
	for _, variable := range container.Env {
		from := variable.ValueFrom
		switch {
		case from == nil:
			found[variable.Name] = variable.Value
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			found[variable.Name] = s.Deployment.Namespace
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
