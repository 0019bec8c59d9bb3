package model

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentenv/fault"
)

// Decode reads an object, as encoding/json decodes it with UseNumber, into a pointer to a struct of the model. Fields that are not given
// keep what they hold, so defaults are what is there before. Integers take strings and whole floats unless the field is strict; booleans
// are never numbers. Every problem is returned, with no value in it; the struct is then of no use. Values of maps and interfaces are taken
// over, not copied. A type that reads its own JSON may say what is wrong by an error of package fault; other errors are not shown.
func (m *Model) Decode(object map[string]any, into any) Problems {
	return m.decode(object, reflect.ValueOf(into).Elem(), nil)
}

func (m *Model) decode(object map[string]any, dst reflect.Value, loc []any) (all Problems) {
	for _, f := range m.fields {
		v, given := object[f.name]
		at := append(slices.Clone(loc), f.name)
		if !given {
			if f.required {
				all = append(all, problem("missing", at, "the field is required")...)
			}
			continue
		}
		all = append(all, f.decode(v, dst.FieldByIndex(f.index), at)...)
	}
	unknown := []string{}
	for name := range object {
		if m.byName[name] == nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		all = append(all, problem("extra_forbidden", append(slices.Clone(loc), name), "the field is not known")...)
	}
	if len(all) == 0 && dst.Addr().Type().Implements(validator) {
		if err := dst.Addr().Interface().(Validator).Validate(); err != nil {
			all = problem("value_error", loc, err.Error())
		}
	}
	return all
}

func (f *field) decode(v any, dst reflect.Value, loc []any) Problems {
	if p := value(v, dst, loc, f.strict); len(p) > 0 || v == nil {
		return p
	}
	for dst.Kind() == reflect.Pointer {
		dst = dst.Elem()
	}
	switch dst.Kind() {
	case reflect.Int, reflect.Int64:
		if n := dst.Int(); f.min != nil && n < *f.min {
			return bound("greater_than_equal", loc, "ge", *f.min, "must be at least")
		} else if f.max != nil && n > *f.max {
			return bound("less_than_equal", loc, "le", *f.max, "must be at most")
		}
	case reflect.String, reflect.Slice, reflect.Map:
		n := int64(dst.Len())
		if dst.Kind() == reflect.String {
			n = int64(utf8.RuneCountInString(dst.String()))
		}
		if f.min != nil && n < *f.min {
			return bound("too_short", loc, "min_length", *f.min, "the length must be at least")
		} else if f.max != nil && n > *f.max {
			return bound("too_long", loc, "max_length", *f.max, "the length must be at most")
		}
	}
	return nil
}

func value(v any, dst reflect.Value, loc []any, strict bool) Problems {
	if v == nil {
		switch dst.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
			dst.SetZero()
			return nil
		}
	}
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		return value(v, dst.Elem(), loc, strict)
	}
	if u, ok := dst.Addr().Interface().(json.Unmarshaler); ok {
		text, err := json.Marshal(v)
		if err == nil {
			err = u.UnmarshalJSON(text)
		}
		if err != nil {
			msg, told := "the value is not one the field takes", (*fault.Error)(nil)
			if errors.As(err, &told) {
				msg = told.Error()
			}
			return problem("value_error", loc, msg)
		}
		return nil
	}
	switch dst.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return problem("string_type", loc, "must be a string")
		}
		dst.SetString(s)
	case reflect.Bool:
		b, ok := boolean(v)
		if !ok {
			return problem("bool_type", loc, "must be true or false")
		}
		dst.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, ok := integer(v, strict)
		if !ok {
			return problem("int_type", loc, "must be an integer")
		}
		dst.SetInt(n)
	case reflect.Float64:
		n, ok := float(v, strict)
		if !ok {
			return problem("float_type", loc, "must be a number")
		}
		dst.SetFloat(n)
	case reflect.Interface:
		dst.Set(reflect.ValueOf(v))
	case reflect.Slice:
		return list(v, dst, loc, strict)
	case reflect.Map:
		return dict(v, dst, loc, strict)
	case reflect.Struct:
		object, ok := v.(map[string]any)
		if !ok {
			return problem("object_type", loc, "must be an object")
		}
		m, err := Of(dst.Type())
		if err != nil {
			return problem("value_error", loc, err.Error())
		}
		return m.decode(object, dst, loc)
	}
	return nil
}

func list(v any, dst reflect.Value, loc []any, strict bool) (all Problems) {
	items, ok := v.([]any)
	if !ok {
		return problem("list_type", loc, "must be a list")
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		all = append(all, value(item, out.Index(i), append(slices.Clone(loc), i), strict)...)
	}
	dst.Set(out)
	return all
}

func dict(v any, dst reflect.Value, loc []any, strict bool) (all Problems) {
	items, ok := v.(map[string]any)
	if !ok {
		return problem("dict_type", loc, "must be an object")
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(items))
	for key, item := range items {
		e := reflect.New(dst.Type().Elem()).Elem()
		all = append(all, value(item, e, append(slices.Clone(loc), key), strict)...)
		out.SetMapIndex(reflect.ValueOf(key).Convert(dst.Type().Key()), e)
	}
	dst.Set(out)
	slices.SortStableFunc(all, func(a, b Problem) int { return strings.Compare(text(a.Loc), text(b.Loc)) })
	return all
}

func text(loc []any) string {
	s, _ := json.Marshal(loc)
	return string(s)
}

func boolean(v any) (b, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case json.Number:
		return v == "1", v == "0" || v == "1"
	case string:
		switch strings.ToLower(v) {
		case "1", "true", "t", "yes", "y", "on":
			return true, true
		case "0", "false", "f", "no", "n", "off":
			return false, true
		}
	}
	return false, false
}

// maxDigits bounds what is looked at of a number: the exponent of a short text may ask for a number of any size.
const maxDigits = 64

func integer(v any, strict bool) (int64, bool) {
	s, isText := v.(string)
	if n, ok := v.(json.Number); ok {
		s = string(n)
	} else if !isText || strict {
		return 0, false
	}
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if strict || err != nil || len(s) > maxDigits || f != math.Trunc(f) || math.Abs(f) >= 1<<63 || strings.ContainsAny(s, "xXpP_") || (isText && strings.ContainsAny(s, "eE")) {
		return 0, false
	}
	exact, ok := new(big.Rat).SetString(s)
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	return exact.Num().Int64(), true
}

func float(v any, strict bool) (float64, bool) {
	s, isText := v.(string)
	if n, ok := v.(json.Number); ok {
		s = string(n)
	} else if !isText || strict {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}
