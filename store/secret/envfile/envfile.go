// Package envfile is the secret store over the process environment and an optional YAML or JSON file.
package envfile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/secret"
)

// Options of a store.
type Options struct {
	Env    func(name string) (string, bool) // the environment; nil = none
	Values map[string]any                   // wins over the file
	Path   string                           // a YAML or JSON file with one flat mapping; "" = none
}

// Store looks names up in the environment, then in the values, then in the file, which is read once, when it is first
// needed. It implements secret.Store.
type Store struct {
	env    func(string) (string, bool)
	values map[string]string
	path   string
	file   func() (map[string]string, error)
}

var _ secret.Store = (*Store)(nil)

// New returns the store. Nothing is read yet. The error is Invalid: a value that is neither text nor a scalar.
func New(o Options) (*Store, error) {
	s := &Store{env: o.Env, path: o.Path, values: map[string]string{}}
	for k, v := range o.Values {
		text, ok, err := plain(v)
		if err != nil {
			return nil, fault.New(fault.Invalid, "secret value %q must be a single value", k)
		}
		if ok {
			s.values[k] = text
		}
	}
	s.file = sync.OnceValues(func() (map[string]string, error) { return readFile(o.Path) })
	return s, nil
}

// FromConfig is New for a checked `config` table: `values` (table), `file_path` (string), `use_env` (boolean, default true).
func FromConfig(table map[string]any, env func(string) (string, bool)) (*Store, error) {
	o := Options{Env: env}
	for k, v := range table {
		ok := true
		switch k {
		case "values":
			o.Values, ok = v.(map[string]any)
		case "file_path":
			o.Path, ok = v.(string)
		case "use_env":
			var use bool
			if use, ok = v.(bool); ok && !use {
				o.Env = nil
			}
		}
		if !ok {
			return nil, fault.New(fault.Invalid, "LocalSecretStore: %s has the wrong type", k)
		}
	}
	return New(o)
}

// Get returns a secret and whether there is one.
func (s *Store) Get(_ context.Context, name string) (string, bool, error) {
	if s.env != nil {
		if v, ok := s.env(name); ok {
			return v, true, nil
		}
	}
	if v, ok := s.values[name]; ok {
		return v, true, nil
	}
	if s.path == "" {
		return "", false, nil
	}
	all, err := s.file()
	if err != nil {
		return "", false, err
	}
	v, ok := all[name]
	return v, ok, nil
}

// Bundle returns everything the values and the file hold, without the environment. The map is the caller's.
func (s *Store) Bundle(context.Context) (map[string]string, error) {
	out := map[string]string{}
	if s.path != "" {
		all, err := s.file()
		if err != nil {
			return nil, err
		}
		for k, v := range all {
			out[k] = v
		}
	}
	for k, v := range s.values {
		out[k] = v
	}
	return out, nil
}

// maxFile bounds a secrets file.
const maxFile = 4 << 20

func readFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		kind := fault.KindOf(err)
		if errors.Is(err, fs.ErrNotExist) {
			kind = fault.Invalid
		}
		return nil, fault.Wrap(kind, err, "secrets file %s", path)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.KindOf(err), err, "secrets file %s", path)
	case len(text) > maxFile:
		return nil, fault.New(fault.Invalid, "secrets file %s is larger than %d MiB", path, maxFile>>20)
	}
	out, where := parse(text)
	if where != "" {
		return nil, fault.New(fault.Invalid, "secrets file %s: %s", path, where)
	}
	return out, nil
}

// parse reads a flat mapping. The problem it reports never quotes the text.
func parse(text []byte) (map[string]string, string) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		problem := "malformed YAML"
		var at interface{ GetToken() *token.Token }
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			p := at.GetToken().Position
			problem += " at line " + strconv.Itoa(p.Line) + " column " + strconv.Itoa(p.Column)
		}
		return nil, problem
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, "one mapping of names to values is needed"
	}
	var pairs []*ast.MappingValueNode
	switch n := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return nil, "one mapping of names to values is needed"
	}
	out := map[string]string{}
	for _, p := range pairs {
		line := strconv.Itoa(p.Key.GetToken().Position.Line)
		key, ok, err := scalar(p.Key)
		if err != nil || !ok {
			return nil, "line " + line + ": a name is needed"
		}
		v, ok, err := scalar(p.Value)
		if err != nil {
			return nil, "line " + line + ": the value must be a single value"
		}
		if ok {
			out[key] = v
		} else {
			delete(out, key)
		}
	}
	return out, ""
}

var errNotScalar = errors.New("not a scalar")

// scalar returns a node's text the way stored secrets have always been read: booleans as True and False, numbers in their
// shortest form. ok is false for null.
func scalar(n ast.Node) (text string, ok bool, err error) {
	switch n := n.(type) {
	case *ast.NullNode:
		return "", false, nil
	case *ast.BoolNode:
		return plain(n.Value)
	case *ast.IntegerNode:
		return plain(n.Value)
	case *ast.FloatNode:
		return plain(n.Value)
	case *ast.LiteralNode:
		return n.Value.Value, true, nil
	case *ast.StringNode:
		if n.GetToken().Type == token.StringType {
			switch strings.ToLower(n.Value) {
			case "yes", "on":
				return "True", true, nil
			case "no", "off":
				return "False", true, nil
			}
		}
		return n.Value, true, nil
	case *ast.InfinityNode, *ast.NanNode:
		return strings.TrimPrefix(strings.ToLower(n.GetToken().Value), "."), true, nil
	}
	return "", false, errNotScalar
}

func plain(v any) (string, bool, error) {
	switch v := v.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case bool:
		if v {
			return "True", true, nil
		}
		return "False", true, nil
	case int64:
		return strconv.FormatInt(v, 10), true, nil
	case uint64:
		return strconv.FormatUint(v, 10), true, nil
	case float64:
		return string(doc.Float(v)), true, nil
	case time.Time:
		return v.Format(time.RFC3339Nano), true, nil
	case interface{ String() string }:
		return v.String(), true, nil
	}
	return "", false, errNotScalar
}
