// Judges the Helm chart without a cluster, and the compose file without an engine: `go run . FOLDER`, where FOLDER is that of
// the packaging.
//
// Helm's own engine renders the chart with several sets of values. Each document must then be one that Kubernetes takes:
// its fields are read strictly into the types of k8s.io/api. References between documents must lead somewhere.
//
// `go run . FOLDER args NODE` prints the arguments that the server gets in pod NODE of a group of three, one a line,
// for a test that starts servers with them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// A set of values, and the documents that they must give; none if they must be refused.
type values struct {
	name, yaml string
	documents  []string
}

var cases = []values{
	{"no values", "", []string{
		"ConfigMap tidegate", "PodDisruptionBudget tidegate", "Secret tidegate", "Service tidegate", "Service tidegate-nodes",
		"StatefulSet tidegate"}},
	{"a single server", "nodes: 1", []string{
		"ConfigMap tidegate", "Secret tidegate", "Service tidegate", "Service tidegate-nodes", "StatefulSet tidegate"}},
	{"a fourth node", "replicas: 4", []string{
		"ConfigMap tidegate", "PodDisruptionBudget tidegate", "Secret tidegate", "Service tidegate", "Service tidegate-nodes",
		"StatefulSet tidegate"}},
	{"secrets that are there already", "{password: {existingSecret: a, key: p}, nodeSecret: {existingSecret: b, key: n}}", []string{
		"ConfigMap tidegate", "PodDisruptionBudget tidegate", "Service tidegate", "Service tidegate-nodes", "StatefulSet tidegate"}},
	{"everything else", `
image: {repository: example.org/tidegate, tag: "1"}
imagePullSecrets: [{name: registry}]
config: "maxmemory 1gb\nmaxmemory-policy noeviction"
service: {type: LoadBalancer, annotations: {a: b}}
persistence: {storageClassName: fast, annotations: {a: b}}
podDisruptionBudget: {enabled: false}
metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}
podAnnotations: {a: b}
podLabels: {a: b}
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {}}
priorityClassName: high
`, []string{
		"ConfigMap tidegate", "Secret tidegate", "Service tidegate", "Service tidegate-nodes", "ServiceMonitor tidegate",
		"StatefulSet tidegate"}},
	{"two nodes, of which none may fail", "nodes: 2", nil},
	{"a node secret that the server refuses", "nodeSecret: {value: short}", nil},
	{"a number in place of the file", "config: 1", nil},
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER [args NODE]")
		os.Exit(2)
	}
	chart := filepath.Join(os.Args[1], "helm", "tidegate")
	if len(os.Args) == 4 && os.Args[2] == "args" {
		printArgs(chart, os.Args[3])
		return
	}
	faults := 0
	for _, values := range cases {
		if err := judge(chart, values); err != nil {
			fmt.Printf("%s: %v\n", values.name, err)
			faults++
		}
	}
	if err := judgeCompose(filepath.Join(os.Args[1], "compose.yaml")); err != nil {
		fmt.Printf("compose.yaml: %v\n", err)
		faults++
	}
	fmt.Printf("chart with %d sets of values, compose.yaml: %d faults\n", len(cases), faults)
	if faults > 0 {
		os.Exit(1)
	}
}

func judge(folder string, values values) error {
	rendered, err := render(folder, values.yaml)
	if values.documents == nil {
		if err == nil {
			return fmt.Errorf("is accepted")
		}
		return nil
	}
	if err != nil {
		return err
	}
	documents, err := read(rendered)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for name := range documents {
		found[name] = true
	}
	for _, name := range values.documents {
		if !found[name] {
			return fmt.Errorf("there is no %s", name)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		return fmt.Errorf("there are also %v", found)
	}
	return references(documents)
}

// Returns the rendered templates by their names.
func render(folder, text string) (map[string]string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "tidegate", Namespace: "shop", IsInstall: true, Revision: 1}
	// This also holds the values against the chart's schema.
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

// Returns the documents by kind and name.
func read(rendered map[string]string) (map[string]any, error) {
	documents := map[string]any{}
	for template, text := range rendered {
		if !strings.HasSuffix(template, ".yaml") {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			if !regexp.MustCompile(`(?m)^[^#\s]`).MatchString(document) {
				continue
			}
			var head struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				return nil, fmt.Errorf("%s: %w", template, err)
			}
			into := empty(head.Kind)
			if into == nil {
				return nil, fmt.Errorf("%s: unknown kind %s", template, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				return nil, fmt.Errorf("%s: %w", template, err)
			}
			documents[head.Kind+" "+head.Metadata.Name] = into
		}
	}
	return documents, nil
}

func empty(kind string) any {
	switch kind {
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "Secret":
		return &corev1.Secret{}
	case "Service":
		return &corev1.Service{}
	case "ServiceMonitor":
		// Not one of Kubernetes' own.
		return &map[string]any{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	}
	return nil
}

// Whether names in the stateful set lead somewhere, and services find its pods.
func references(documents map[string]any) error {
	set := documents["StatefulSet tidegate"].(*appsv1.StatefulSet)
	pod := set.Spec.Template
	container := pod.Spec.Containers[0]
	ports := map[string]bool{}
	for _, port := range container.Ports {
		ports[port.Name] = true
	}
	for name, document := range documents {
		service, is := document.(*corev1.Service)
		if !is {
			continue
		}
		if !within(service.Spec.Selector, pod.Labels) {
			return fmt.Errorf("%s selects no pod", name)
		}
		for _, port := range service.Spec.Ports {
			if !ports[port.TargetPort.StrVal] {
				return fmt.Errorf("%s leads to port %v, which no pod has", name, port.TargetPort.String())
			}
		}
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if !ports[probe.HTTPGet.Port.StrVal] {
			return fmt.Errorf("a probe asks port %v, which no pod has", probe.HTTPGet.Port.String())
		}
	}
	if !within(set.Spec.Selector.MatchLabels, pod.Labels) {
		return fmt.Errorf("the stateful set does not select its pods")
	}
	names, is := documents["Service "+set.Spec.ServiceName].(*corev1.Service)
	if !is || names.Spec.ClusterIP != corev1.ClusterIPNone || !names.Spec.PublishNotReadyAddresses {
		return fmt.Errorf("the pods have no names")
	}
	volumes := map[string]bool{}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		volumes[claim.Name] = true
	}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = true
		if volume.Secret != nil && !hasSecret(documents, volume.Secret.SecretName, volume.Secret.Items[0].Key) {
			return fmt.Errorf("there is no secret %s with that key", volume.Secret.SecretName)
		}
		if volume.ConfigMap != nil && documents["ConfigMap "+volume.ConfigMap.Name] == nil {
			return fmt.Errorf("there is no config map %s", volume.ConfigMap.Name)
		}
	}
	for _, mount := range container.VolumeMounts {
		if !volumes[mount.Name] {
			return fmt.Errorf("there is no volume %s", mount.Name)
		}
	}
	for _, variable := range container.Env {
		if from := variable.ValueFrom.SecretKeyRef; from != nil && !hasSecret(documents, from.Name, from.Key) {
			return fmt.Errorf("there is no secret %s with that key", from.Name)
		}
	}
	if unknown := regexp.MustCompile(`\$\(\w+\)`).FindString(strings.Join(expand(container, "1"), " ")); unknown != "" {
		return fmt.Errorf("%s has no value", unknown)
	}
	return nil
}

func within(part, whole map[string]string) bool {
	for key, value := range part {
		if whole[key] != value {
			return false
		}
	}
	return true
}

// Whether a secret has a key. One that the chart does not make is the user's.
func hasSecret(documents map[string]any, name, key string) bool {
	secret, is := documents["Secret "+name].(*corev1.Secret)
	return !is || len(secret.Data[key]) > 0
}

// Returns the arguments of the server in a pod, as Kubernetes would expand them.
func expand(container corev1.Container, node string) []string {
	var pairs []string
	for _, variable := range container.Env {
		value := "password"
		if from := variable.ValueFrom.FieldRef; from != nil {
			value = map[string]string{
				"metadata.name": "tidegate-" + node,
				"metadata.labels['apps.kubernetes.io/pod-index']": node,
			}[from.FieldPath]
		}
		pairs = append(pairs, "$("+variable.Name+")", value)
	}
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.NewReplacer(pairs...).Replace(arg))
	}
	return args
}

func printArgs(folder, node string) {
	rendered, err := render(folder, "")
	if err == nil {
		var documents map[string]any
		if documents, err = read(rendered); err == nil {
			set := documents["StatefulSet tidegate"].(*appsv1.StatefulSet)
			fmt.Println(strings.Join(expand(set.Spec.Template.Spec.Containers[0], node), "\n"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
