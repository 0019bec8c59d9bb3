package task

import (
	"agentenv/store/doc"
)

// SchemaOf returns the JSON Schema (draft 2020-12) of task files, for editors: every step type of the registry with its
// fields, defaults and words for people. The caller may change the result.
func SchemaOf(reg *Registry) *doc.Object {
	defs := &doc.Object{}
	var conditions []any
	var names []any
	for _, k := range reg.All() {
		names = append(names, k.Name)
		defs.Set(k.Name, k.schema())
		conditions = append(conditions, doc.Of(
			"if", doc.Of("properties", doc.Of("type", doc.Of("const", k.Name)), "required", []any{"type"}),
			"then", doc.Of("$ref", "#/$defs/"+k.Name)))
	}
	step := doc.Of("type", "object", "required", []any{"id", "type"},
		"properties", doc.Of("id", described("string", "Unique in the task."), "type", doc.Of("enum", orEmpty(names))))
	if len(conditions) > 0 {
		step.Set("allOf", conditions)
	}
	defs.Set("step", step)
	steps := doc.Of("type", "array", "maxItems", doc.Int(MaxSteps), "items", doc.Of("$ref", "#/$defs/step"))
	whole := doc.Of("type", "object", "required", []any{"steps"}, "properties", doc.Of(
		"steps", steps,
		"max_parallel_steps", doc.Of("type", "integer", "minimum", doc.Int(0), "description", "How many steps may run at once; 0: no limit."),
		"fail_fast", described("boolean", "A failed step that fails the task also cancels the steps in flight.")))
	return doc.Of("$schema", "https://json-schema.org/draft/2020-12/schema", "title", "agent-env task",
		"anyOf", []any{steps, whole}, "$defs", defs)
}

func orEmpty(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

func described(kind, text string) *doc.Object { return doc.Of("type", kind, "description", text) }

func (k *StepType) schema() *doc.Object {
	properties := doc.Of(
		"id", described("string", "Unique in the task."),
		"type", doc.Of("const", k.Name, "description", k.Summary),
		"version", doc.Of("type", []any{"integer", "null"}, "description", "Version in the step store; written by the program."),
		"fail_task_on_error", doc.Of("type", []any{"boolean", "null"}, "default", k.FailsTask, "description", "false: a failure is recorded and the run goes on."),
		"depends_on", doc.Of("type", []any{"array", "null"}, "description", "Ids of earlier steps to wait for; absent: all of them.",
			"items", doc.Of("anyOf", []any{doc.Of("type", "string"), doc.Of("type", "object", "required", []any{"task_step_id"})})),
		"retry_config", doc.Of("type", []any{"object", "null"}, "properties", doc.Of(
			"retry_from_step_id", described("string", "The step to go back to: this one, or one it depends on."),
			"max_retries", doc.Of("type", "integer", "minimum", doc.Int(0), "default", doc.Int(1)),
			"delay_seconds", doc.Of("type", "number", "minimum", doc.Int(0)))),
		"step_timeout_seconds", doc.Of("type", []any{"number", "null"}, "minimum", doc.Int(0), "description", "The step fails when it takes longer; 0 or absent: no limit."))
	required := []any{"id", "type"}
	for _, f := range k.Fields {
		properties.Set(f.Name, f.schema())
		if f.Required {
			required = append(required, f.Name)
		}
	}
	out := doc.Of("type", "object", "properties", properties, "required", required, "additionalProperties", false)
	if k.Summary != "" {
		out.Set("description", k.Summary)
	}
	return out
}

func (f *Field) schema() *doc.Object {
	out := &doc.Object{}
	if f.Kind != Any {
		if f.Required {
			out.Set("type", schemaType(f.Kind))
		} else {
			out.Set("type", []any{schemaType(f.Kind), "null"})
		}
	}
	if f.Doc != "" {
		out.Set("description", f.Doc)
	}
	if f.Default != nil {
		out.Set("default", f.Default)
	}
	if len(f.Enum) > 0 {
		var words []any
		for _, w := range f.Enum {
			words = append(words, w)
		}
		if !f.Required {
			words = append(words, nil)
		}
		out.Set("enum", words)
	}
	if f.Items != "" && f.Items != Any {
		items := doc.Of("type", schemaType(f.Items))
		if f.Kind == List {
			out.Set("items", items)
		} else if f.Kind == ObjectKind {
			out.Set("additionalProperties", items)
		}
	}
	return out
}

func schemaType(k FieldKind) string {
	if k == List {
		return "array"
	}
	return string(k)
}
