package files

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// fetch is one URL and the plain name its bytes get.
type fetch struct{ url, name string }

// fetches reads the entries of `urls` and names each: an explicit filename is used as it is; a bare URL takes the last segment
// of its percent-decoded path, numbered when another bare URL has it. Errors are Invalid.
func fetches(entries []any) ([]fetch, error) {
	out := make([]fetch, len(entries))
	explicit, bare := map[string]bool{}, map[string]bool{}
	for i, e := range entries {
		switch e := e.(type) {
		case string:
			name, err := nameOf(e)
			if err != nil {
				return nil, err
			}
			out[i] = fetch{e, numbered(bare, name)}
		case *doc.Object:
			f, err := explicitEntry(e)
			if err != nil {
				return nil, err
			}
			if explicit[f.name] {
				return nil, fault.New(fault.Invalid, "urls: two entries have the filename %q", f.name)
			}
			explicit[f.name] = true
			out[i] = f
		default:
			return nil, fault.New(fault.Invalid, "urls holds a %s; an entry is a URL or {\"url\": …, \"filename\": …}", doc.TypeName(e))
		}
	}
	for i, f := range out {
		if _, isBare := entries[i].(string); isBare && explicit[f.name] {
			return nil, fault.New(fault.Invalid, "urls: %s would be stored as %q, which another entry has as its filename; give it a filename of its own", f.url, f.name)
		}
	}
	return out, nil
}

func explicitEntry(e *doc.Object) (fetch, error) {
	f := fetch{e.Str("url"), e.Str("filename")}
	for _, k := range e.Keys() {
		if k != "url" && k != "filename" {
			return f, fault.New(fault.Invalid, "urls: an entry takes exactly the keys url and filename, not %q", k)
		}
	}
	switch {
	case f.url == "" || f.name == "":
		return f, fault.New(fault.Invalid, "urls: an entry needs url and filename, both non-empty strings")
	case !plainName(f.name):
		return f, fault.New(fault.Invalid, "urls: filename %q must be a plain name, without a folder", f.name)
	}
	_, err := parseURL(f.url)
	return f, err
}

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "urls: %q is no http or https URL", raw)
	}
	return u, nil
}

func nameOf(raw string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	// The path is decoded first, so an escaped slash separates too.
	name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	if name == "" {
		return "downloaded", nil
	}
	if !plainName(name) {
		return "", fault.New(fault.Invalid, "urls: no file name can be taken from %q; write it as {\"url\": …, \"filename\": …}", raw)
	}
	return name, nil
}

func numbered(taken map[string]bool, name string) string {
	out := name
	ext := path.Ext(name)
	if ext == name {
		ext = ""
	}
	for n := 1; taken[out]; n++ {
		out = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
	}
	taken[out] = true
	return out
}
