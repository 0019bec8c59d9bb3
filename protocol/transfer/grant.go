// Package transfer moves objects between an agent or environment and an object store that only grants reach: short-lived permissions to
// read or write one object, or to write below a path. It holds their wire forms, which are closed, and the transfers themselves with
// their limits, checks and errors.
package transfer

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
)

// The kinds of grants.
const (
	KindGet  = "http-get"
	KindPut  = "http-put"
	KindPost = "http-post-policy"
)

// Grant is the permission to read or write one object: one GET or PUT with the headers as given.
type Grant struct {
	Kind      string
	URL       string
	ExpiresAt time.Time
	Headers   map[string]string
}

// Policy is the permission to write objects below a path by multipart POST.
type Policy struct {
	URL       string
	Fields    map[string]string
	PathField string
	FileField string
	Headers   map[string]string
}

// ReadObject is an object to read.
type ReadObject struct {
	MediaType string
	MaxBytes  int64
	Size      int64  // -1 = not told
	SHA256    string // "" = not told
	Read      Grant
}

// WriteObject is an object to write.
type WriteObject struct {
	MediaType string
	MaxBytes  int64
	Write     Grant
}

// NamespaceGrant is the permission to write objects below a root path.
type NamespaceGrant struct {
	RootPath                             string
	ExpiresAt                            time.Time
	MaxObjects, MaxObjectBytes, MaxTotal int64
	Write                                Policy
}

// Uploaded is what was written.
type Uploaded struct {
	Size   int64
	SHA256 string // "" = not told
}

// JSON returns the wire form.
func (u Uploaded) JSON() map[string]any {
	o := map[string]any{"size_bytes": u.Size}
	if u.SHA256 != "" {
		o["sha256"] = u.SHA256
	}
	return o
}

var (
	mediaTypeForm = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$`)
	sha256Form    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	timeForm      = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]00:00)$`)
)

// fields takes a closed object apart and keeps what is wrong first.
type fields struct {
	at   string
	o    map[string]any
	seen map[string]bool
	err  *error
}

func fieldsOf(at string, v any, err *error) fields {
	f := fields{at: at, seen: map[string]bool{}, err: err}
	o, ok := v.(map[string]any)
	if f.o = o; !ok {
		f.fail("", "must be an object")
	}
	return f
}

func (f fields) fail(name, format string, args ...any) {
	if *f.err == nil {
		*f.err = fault.New(fault.Invalid, "%s %s", strings.Trim(f.at+"."+name, "."), fmt.Sprintf(format, args...))
	}
}

func (f fields) get(name string, required bool) (any, bool) {
	f.seen[name] = true
	v, ok := f.o[name]
	if ok = ok && v != nil; !ok && required {
		f.fail(name, "is missing")
	}
	return v, ok
}

func (f fields) text(name string) string {
	v, ok := f.get(name, true)
	s, isText := v.(string)
	if ok && (!isText || s == "") {
		f.fail(name, "must be a string that is not empty")
	}
	return s
}

func (f fields) size(name string, least int64, required bool) int64 {
	v, ok := f.get(name, required)
	if !ok {
		return -1
	}
	n, isNumber := v.(interface{ Int64() (int64, error) }) // json.Number
	if isNumber {
		if i, err := n.Int64(); err == nil && i >= least {
			return i
		}
	}
	f.fail(name, "must be an integer from %d", least)
	return -1
}

func (f fields) when(name string) time.Time {
	s := f.text(name)
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if s != "" && (err != nil || !timeForm.MatchString(s)) {
		f.fail(name, "must be a time in UTC as RFC 3339 has it")
	}
	return t.UTC()
}

func (f fields) address(name string) string {
	s := f.text(name)
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		f.fail(name, "must be an absolute https URL")
	}
	return s
}

func (f fields) texts(name string, required bool) map[string]string {
	v, ok := f.get(name, required)
	if !ok {
		return nil
	}
	o, isObject := v.(map[string]any)
	if !isObject {
		f.fail(name, "must be an object of strings")
		return nil
	}
	out := map[string]string{}
	for k, v := range o {
		s, isText := v.(string)
		if !isText {
			f.fail(name, "must be an object of strings")
		}
		out[k] = s
	}
	return out
}

func (f fields) kind(want string) {
	if s := f.text("kind"); s != "" && s != want {
		f.fail("kind", "must be %s", want)
	}
}

func (f fields) mediaType() string {
	s := f.text("media_type")
	if s != "" && !mediaTypeForm.MatchString(s) {
		f.fail("media_type", "must be type/subtype without parameters")
	}
	return s
}

func (f fields) path(name string) string {
	s := f.text(name)
	if s != "" && !Relative(s) {
		f.fail(name, "must be a relative path without empty, . and .. segments")
	}
	return s
}

func (f fields) inner(name string) fields {
	v, _ := f.get(name, true)
	return fieldsOf(f.at+"."+name, v, f.err)
}

// closed refuses what no field has asked for.
func (f fields) closed() {
	for _, k := range slices.Sorted(maps.Keys(f.o)) {
		if !f.seen[k] {
			f.fail("", "has the unknown field %q", k)
		}
	}
}

// Relative reports whether p is a relative path with / between segments of which none is empty, . or .. .
func Relative(p string) bool {
	if p == "" || strings.ContainsAny(p, "\\\x00") {
		return false
	}
	for s := range strings.SplitSeq(p, "/") {
		if s == "" || s == "." || s == ".." {
			return false
		}
	}
	return true
}

func (f fields) grant(name, kind string) Grant {
	g := f.inner(name)
	defer g.closed()
	g.kind(kind)
	return Grant{Kind: kind, URL: g.address("url"), ExpiresAt: g.when("expires_at"), Headers: g.texts("headers", false)}
}

// ParseReadObject reads the wire form, decoded with json.Number; at names it in errors, which are Invalid and never hold a URL or header.
func ParseReadObject(at string, v any) (ReadObject, error) {
	var err error
	f := fieldsOf(at, v, &err)
	o := ReadObject{MediaType: f.mediaType(), MaxBytes: f.size("max_bytes", 1, true), Size: f.size("size_bytes", 0, false), Read: f.grant("read", KindGet)}
	if _, told := f.get("sha256", false); told {
		if o.SHA256 = f.text("sha256"); !sha256Form.MatchString(o.SHA256) {
			f.fail("sha256", "must be 64 lowercase hexadecimal digits")
		}
	}
	if o.Size > o.MaxBytes {
		f.fail("size_bytes", "is more than max_bytes")
	}
	f.closed()
	return o, err
}

// ParseWriteObject reads the wire form as ParseReadObject does.
func ParseWriteObject(at string, v any) (WriteObject, error) {
	var err error
	f := fieldsOf(at, v, &err)
	o := WriteObject{MediaType: f.mediaType(), MaxBytes: f.size("max_bytes", 1, true), Write: f.grant("write", KindPut)}
	f.closed()
	return o, err
}

// ParseNamespace reads the wire form as ParseReadObject does.
func ParseNamespace(at string, v any) (NamespaceGrant, error) {
	var err error
	f := fieldsOf(at, v, &err)
	n := NamespaceGrant{RootPath: f.path("root_path"), ExpiresAt: f.when("expires_at"), MaxObjects: f.size("max_objects", 1, true),
		MaxObjectBytes: f.size("max_object_bytes", 1, true), MaxTotal: f.size("max_total_bytes", 1, true)}
	w := f.inner("write")
	w.kind(KindPost)
	n.Write = Policy{URL: w.address("url"), Fields: w.texts("fields", true), PathField: w.text("path_field"), FileField: w.text("file_field"),
		Headers: w.texts("headers", false)}
	w.closed()
	f.closed()
	return n, err
}

// ParseUploaded reads what a peer says it has written; unknown fields are passed over.
func ParseUploaded(at string, v any) (Uploaded, error) {
	var err error
	f := fieldsOf(at, v, &err)
	u := Uploaded{Size: f.size("size_bytes", 0, true)}
	if _, told := f.get("sha256", false); told {
		if u.SHA256 = f.text("sha256"); !sha256Form.MatchString(u.SHA256) {
			f.fail("sha256", "must be 64 lowercase hexadecimal digits")
		}
	}
	return u, err
}

// instant writes a time as the wire has it.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999999Z") }

// JSON returns the wire form.
func (g Grant) JSON() map[string]any {
	o := map[string]any{"kind": g.Kind, "url": g.URL, "expires_at": instant(g.ExpiresAt)}
	if len(g.Headers) > 0 {
		o["headers"] = g.Headers
	}
	return o
}

// JSON returns the wire form.
func (o ReadObject) JSON() map[string]any {
	m := map[string]any{"media_type": o.MediaType, "max_bytes": o.MaxBytes, "read": o.Read.JSON()}
	if o.Size >= 0 {
		m["size_bytes"] = o.Size
	}
	if o.SHA256 != "" {
		m["sha256"] = o.SHA256
	}
	return m
}

// JSON returns the wire form.
func (o WriteObject) JSON() map[string]any {
	return map[string]any{"media_type": o.MediaType, "max_bytes": o.MaxBytes, "write": o.Write.JSON()}
}

// JSON returns the wire form.
func (n NamespaceGrant) JSON() map[string]any {
	w := map[string]any{"kind": KindPost, "url": n.Write.URL, "fields": n.Write.Fields, "path_field": n.Write.PathField, "file_field": n.Write.FileField}
	if len(n.Write.Headers) > 0 {
		w["headers"] = n.Write.Headers
	}
	return map[string]any{"root_path": n.RootPath, "expires_at": instant(n.ExpiresAt), "max_objects": n.MaxObjects, "max_object_bytes": n.MaxObjectBytes,
		"max_total_bytes": n.MaxTotal, "write": w}
}
