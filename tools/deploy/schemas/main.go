// Command schemas writes the JSON schemas with which kubeconform checks manifests, one
// file for each kind. Without them, kubeconform would download its own. Their sources are
// Go modules: Kubernetes' OpenAPI documents, and the custom resource definitions of the
// Prometheus operator and of KEDA.
//
//	schemas OUT KUBERNETES PROMETHEUS-OPERATOR KEDA
//
// The last three arguments are the folders of the modules that the file kinds pins.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: schemas OUT KUBERNETES PROMETHEUS-OPERATOR KEDA")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

type object = map[string]any

func run(out, kubernetes, operator, keda string) error {
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	for _, group := range []string{"api__v1", "apis__apps__v1", "apis__policy__v1", "apis__networking.k8s.io__v1"} {
		if err := fromOpenAPI(out, filepath.Join(kubernetes, "api/openapi-spec/v3", group+"_openapi.json")); err != nil {
			return err
		}
	}
	return errors.Join(
		fromCRD(out, filepath.Join(operator, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml")),
		fromCRD(out, filepath.Join(operator, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml")),
		fromCRD(out, filepath.Join(keda, "config/crd/bases/keda.sh_scaledobjects.yaml")),
	)
}

// fromOpenAPI writes the schema of each kind that a group's document defines, with all
// schemas that it refers to.
func fromOpenAPI(out, path string) error {
	doc, err := read(path)
	if err != nil {
		return err
	}
	components, _ := doc["components"].(object)
	schemas, _ := components["schemas"].(object)
	for _, s := range schemas {
		strict(s)
	}
	loose(schemas)
	for name, s := range schemas {
		schema, _ := s.(object)
		kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // not a kind, or one that belongs to every group
		}
		gvk, _ := kinds[0].(object)
		whole := object{"$ref": "#/components/schemas/" + name, "components": object{"schemas": schemas}}
		if err := write(out, fmt.Sprint(gvk["kind"]), fmt.Sprint(gvk["group"]), fmt.Sprint(gvk["version"]),
			whole); err != nil {
			return err
		}
	}
	return nil
}

// loose redefines the two types that are a number or a text, so that both are accepted in
// any version of the documents.
func loose(schemas object) {
	either := object{"oneOf": []any{object{"type": "string"}, object{"type": "integer"}}}
	schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = either
	schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"] = object{"oneOf": []any{object{"type": "string"},
		object{"type": "number"}}}
}

// fromCRD writes the kind that a custom resource definition defines, in each of
// its versions.
func fromCRD(out, path string) error {
	doc, err := read(path)
	if err != nil {
		return err
	}
	spec, _ := doc["spec"].(object)
	names, _ := spec["names"].(object)
	versions, _ := spec["versions"].([]any)
	if len(versions) == 0 {
		return fmt.Errorf("%s defines no version", path)
	}
	for _, v := range versions {
		version, _ := v.(object)
		schema, _ := version["schema"].(object)
		root, _ := schema["openAPIV3Schema"].(object)
		strict(root)
		root["properties"].(object)["metadata"] = object{"type": "object"} // any
		if err := write(out, fmt.Sprint(names["kind"]), fmt.Sprint(spec["group"]), fmt.Sprint(version["name"]),
			root); err != nil {
			return err
		}
	}
	return nil
}

// strict changes a schema so that it refuses properties that it doesn't name, as
// Kubernetes does with strict validation. It also translates what OpenAPI writes in
// another way than JSON schema.
func strict(node any) {
	switch n := node.(type) {
	case []any:
		for _, v := range n {
			strict(v)
		}
	case object:
		delete(n, "description")
		for _, v := range n {
			strict(v)
		}
		_, named := n["properties"].(object)
		_, more := n["additionalProperties"]
		if named && !more && n["x-kubernetes-preserve-unknown-fields"] != true {
			n["additionalProperties"] = false
		}
		if n["x-kubernetes-int-or-string"] == true {
			delete(n, "anyOf")
			n["oneOf"] = []any{object{"type": "string"}, object{"type": "integer"}}
		}
		if kind, ok := n["type"].(string); ok && n["nullable"] == true {
			n["type"] = []any{kind, "null"}
		}
	}
}

func read(path string) (object, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc object
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return doc, nil
}

func write(out, kind, group, version string, schema object) error {
	b, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	group, _, _ = strings.Cut(group, ".") // kubeconform's file names have only this part
	name := kind + "-" + version + ".json"
	if group != "" {
		name = kind + "-" + group + "-" + version + ".json"
	}
	return os.WriteFile(filepath.Join(out, strings.ToLower(name)), b, 0o600)
}
