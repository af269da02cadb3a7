// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenSeconds is how long a pod's token lives: longer than any run of tests.
const tokenSeconds = 12 * 3600

// Kubelet stands in for the kubelets of nodes that the controller's pods are bound to: it runs the controller's binary as
// the pod specifies (command, arguments, environment, mounted files, the service account's own token) and ends it when the pod
// is deleted. KWOK simulates the rest of those pods. What a network namespace would give each pod, two ports of its own, comes from
// METRICS_PORT and HEALTH_PROBE_PORT; a token of its own, from a kubeconfig where the in-cluster configuration would be.
type Kubelet struct {
	env       *Environment
	namespace string
	labels    map[string]string
	clients   kubernetes.Interface

	mu      sync.Mutex
	running map[types.UID]*PodProcess
	done    chan struct{}
	cancel  context.CancelFunc
	err     error
}

// PodProcess is the process of a pod.
type PodProcess struct {
	// Pod is the pod's name.
	Pod string
	*Controller
}

// StartKubelet runs the pods of a namespace that have these labels, those that come later included, until the environment
// is stopped or Stop is called.
func (e *Environment) StartKubelet(namespace string, labels map[string]string) (*Kubelet, error) {
	clients, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	k := &Kubelet{env: e, namespace: namespace, labels: labels, clients: clients, running: map[types.UID]*PodProcess{}, done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(k.done)
		_ = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := k.sync(ctx); err != nil && ctx.Err() == nil {
				k.mu.Lock()
				k.err = errors.Join(k.err, err)
				k.mu.Unlock()
				return true, nil
			}
			return false, nil
		})
	}()
	return k, nil
}

// Processes are the processes that run now, by the name of their pod.
func (k *Kubelet) Processes() (map[string]*PodProcess, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	processes := map[string]*PodProcess{}
	for _, p := range k.running {
		if !p.process.exited() {
			processes[p.Pod] = p
		}
	}
	return processes, k.err
}

// Stop ends all processes as Kubernetes would.
func (k *Kubelet) Stop() error {
	k.cancel()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := []error{k.err}
	for _, p := range k.running {
		errs = append(errs, p.Controller.Stop())
	}
	return errors.Join(errs...)
}

// sync starts what should run and ends what should not.
func (k *Kubelet) sync(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := k.env.client.List(ctx, pods, client.InNamespace(k.namespace), client.MatchingLabels(k.labels)); err != nil {
		return nil // the API server may be away: a kubelet tries again
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		wanted[pod.UID] = true
		if k.running[pod.UID] != nil {
			// One that has ended stays ended: a test sees it, and no restart hides it.
			k.report(ctx, pod, k.running[pod.UID])
			continue
		}
		p, err := k.run(ctx, pod)
		if err != nil {
			return fmt.Errorf("running pod %s: %w", pod.Name, err)
		}
		k.running[pod.UID] = p
	}
	for uid, p := range k.running {
		if !wanted[uid] {
			delete(k.running, uid)
			if err := p.Controller.Stop(); err != nil {
				return fmt.Errorf("ending pod %s: %w", p.Pod, err)
			}
		}
	}
	return nil
}

// report says how a pod has ended that is not restarted. What fails is tried again at the next sync.
func (k *Kubelet) report(ctx context.Context, pod *corev1.Pod, p *PodProcess) {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || pod.Status.Phase != corev1.PodRunning || !p.process.exited() {
		return
	}
	ended := pod.DeepCopy()
	if ended.Status.Phase = corev1.PodSucceeded; p.process.err != nil {
		ended.Status.Phase = corev1.PodFailed
	}
	_ = k.env.client.Status().Patch(ctx, ended, client.MergeFrom(pod))
}

func (k *Kubelet) run(ctx context.Context, pod *corev1.Pod) (*PodProcess, error) {
	e := k.env
	container := &pod.Spec.Containers[0]
	dir := filepath.Join(e.dir, "pods", pod.Name)
	variables, err := k.variables(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	mounted, err := k.mount(ctx, pod, container, filepath.Join(dir, "volumes"))
	if err != nil {
		return nil, err
	}
	config, err := k.kubeconfig(ctx, pod, dir)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	c := &Controller{metrics: ports[0], health: ports[1]}
	maps.Copy(variables, e.proxy.env())
	maps.Copy(variables, map[string]string{
		"KUBECONFIG": config, "HOSTNAME": pod.Name,
		"METRICS_PORT": strconv.Itoa(c.metrics), "HEALTH_PROBE_PORT": strconv.Itoa(c.health),
	})
	list := baseEnv()
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, name+"="+mounted.Replace(variables[name]))
	}
	path, err := e.binary(ctx, "CONTROLLER", "cmd/controller")
	if err != nil {
		return nil, err
	}
	// The image's entrypoint, unless the pod overrides it.
	line := append(slices.Clone(container.Command), container.Args...)
	for i := range line {
		line[i] = mounted.Replace(line[i])
	}
	if len(container.Command) > 0 {
		if filepath.Base(line[0]) != filepath.Base(path) {
			return nil, fmt.Errorf("its command is %q, and the image holds nothing but %s", line[0], filepath.Base(path))
		}
		line = line[1:]
	}
	name := "pod-" + pod.Name
	c.process, err = e.launch(command{name: name, path: path, args: line, env: list, log: e.logPath(name)}, nil)
	return &PodProcess{Pod: pod.Name, Controller: c}, err
}

// variables are the environment that the pod gives its container.
func (k *Kubelet) variables(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (map[string]string, error) {
	variables := map[string]string{}
	for _, from := range container.EnvFrom {
		switch {
		case from.SecretRef != nil:
			data, err := k.secret(ctx, from.SecretRef.Name)
			if err != nil {
				return nil, err
			}
			for key, value := range data {
				variables[from.Prefix+key] = string(value)
			}
		case from.ConfigMapRef != nil:
			data, err := k.configMap(ctx, from.ConfigMapRef.Name)
			if err != nil {
				return nil, err
			}
			for key, value := range data {
				variables[from.Prefix+key] = value
			}
		}
	}
	for _, variable := range container.Env {
		value, err := k.value(ctx, pod, container, variable)
		if err != nil {
			return nil, fmt.Errorf("the environment variable %s: %w", variable.Name, err)
		}
		variables[variable.Name] = value
	}
	return variables, nil
}

func (k *Kubelet) value(ctx context.Context, pod *corev1.Pod, container *corev1.Container, variable corev1.EnvVar) (string, error) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		return variable.Value, nil
	case from.SecretKeyRef != nil:
		data, err := k.secret(ctx, from.SecretKeyRef.Name)
		value, ok := data[from.SecretKeyRef.Key]
		if err == nil && !ok {
			err = fmt.Errorf("the Secret %s has no key %s", from.SecretKeyRef.Name, from.SecretKeyRef.Key)
		}
		return string(value), err
	case from.ConfigMapKeyRef != nil:
		data, err := k.configMap(ctx, from.ConfigMapKeyRef.Name)
		value, ok := data[from.ConfigMapKeyRef.Key]
		if err == nil && !ok {
			err = fmt.Errorf("the ConfigMap %s has no key %s", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key)
		}
		return value, err
	case from.FieldRef != nil:
		fields := map[string]string{
			"metadata.namespace": pod.Namespace, "metadata.name": pod.Name, "metadata.uid": string(pod.UID), "spec.nodeName": pod.Spec.NodeName,
		}
		value, ok := fields[from.FieldRef.FieldPath]
		if !ok {
			return "", fmt.Errorf("the field %s is not one that this stand-in knows", from.FieldRef.FieldPath)
		}
		return value, nil
	case from.ResourceFieldRef != nil:
		return resourceField(container, from.ResourceFieldRef)
	}
	return "", errors.New("its source is not one that this stand-in knows")
}

// resourceField is a request or limit in units of the divisor, rounded up, as the kubelet does it.
func resourceField(container *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := map[string]corev1.ResourceList{"requests": container.Resources.Requests, "limits": container.Resources.Limits}[kind]
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("the container has no %s", ref.Resource)
	}
	divisor := ref.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	return strconv.FormatInt((quantity.MilliValue()+divisor-1)/divisor, 10), nil
}

// mount writes what the container's volumes hold, and returns what makes its paths of ours.
func (k *Kubelet) mount(ctx context.Context, pod *corev1.Pod, container *corev1.Container, dir string) (*strings.Replacer, error) {
	var pairs []string
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || strings.HasPrefix(m.MountPath, "/var/run/secrets/kubernetes.io/serviceaccount") {
			continue
		}
		files := map[string][]byte{}
		volume := pod.Spec.Volumes[i]
		switch {
		case volume.Secret != nil:
			data, err := k.secret(ctx, volume.Secret.SecretName)
			if err != nil {
				return nil, err
			}
			files = data
		case volume.ConfigMap != nil:
			data, err := k.configMap(ctx, volume.ConfigMap.Name)
			if err != nil {
				return nil, err
			}
			for key, value := range data {
				files[key] = []byte(value)
			}
		case volume.EmptyDir != nil:
		default:
			return nil, fmt.Errorf("the volume %s is of a kind that this stand-in does not know", volume.Name)
		}
		path := filepath.Join(dir, m.Name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("making the volume %s: %w", volume.Name, err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(path, name), content, 0o600); err != nil {
				return nil, fmt.Errorf("writing the volume %s: %w", volume.Name, err)
			}
		}
		pairs = append(pairs, m.MountPath, path)
	}
	return strings.NewReplacer(pairs...), nil
}

// kubeconfig writes a kubeconfig with a token of the pod's service account, which the API server makes for this pod.
func (k *Kubelet) kubeconfig(ctx context.Context, pod *corev1.Pod, dir string) (string, error) {
	seconds := int64(tokenSeconds)
	token, err := k.clients.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of the service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	const name = "pod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: k.env.server, CertificateAuthorityData: k.env.pki.pem}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(dir, "kubeconfig")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the pod's directory: %w", err)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the pod's kubeconfig: %w", err)
	}
	return path, nil
}

func (k *Kubelet) secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := k.env.client.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: name}, secret)
	return secret.Data, err
}

func (k *Kubelet) configMap(ctx context.Context, name string) (map[string]string, error) {
	configMap := &corev1.ConfigMap{}
	err := k.env.client.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: name}, configMap)
	return configMap.Data, err
}
