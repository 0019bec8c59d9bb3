package model

import (
	"encoding/json"
	"fmt"
)

// Problem is one thing that is wrong with an object. It never holds the value that was refused.
type Problem struct {
	Type string         `json:"type"` // "missing", "extra_forbidden", "string_type", "int_type", "greater_than_equal", …
	Loc  []any          `json:"loc"`  // field names and list indexes from the top, empty for the object itself
	Msg  string         `json:"msg"`
	Ctx  map[string]any `json:"ctx,omitempty"` // the bound that does not hold
}

// Problems are all that is wrong with an object. They are an error whose text is a JSON array.
type Problems []Problem

// Error returns the problems as a JSON array.
func (p Problems) Error() string {
	text, err := json.Marshal([]Problem(p))
	if err != nil {
		return fmt.Sprintf("%d problems", len(p))
	}
	return string(text)
}

func problem(kind string, loc []any, msg string) Problems {
	return Problems{{Type: kind, Loc: append([]any{}, loc...), Msg: msg}}
}

func bound(kind string, loc []any, key string, limit int64, msg string) Problems {
	p := problem(kind, loc, fmt.Sprintf("%s %d", msg, limit))
	p[0].Ctx = map[string]any{key: limit}
	return p
}
