package transfer

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"agentenv/fault"
)

// The bounds of a form.
const (
	MaxFields      = 32
	MaxField       = 64 << 10 // bytes of one field
	MaxPartHeaders = 16 << 10
)

// Form is what writes one object by multipart POST: fields, and after them the file.
type Form struct {
	Key         string    // the field `key`
	ContentType string    // the field `Content-Type`, application/octet-stream when absent
	File        io.Reader // ends without an error only when the whole form has been read
}

// ReadForm reads a form's fields up to its file; what follows the file is passed over. Every error is Invalid and one sentence that can be
// shown to the sender: no multipart form, no key before the file, no file, more or longer fields than the bounds allow.
func ReadForm(r *http.Request) (*Form, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, fault.New(fault.Invalid, "the body is no multipart/form-data with a boundary")
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	f := &Form{ContentType: "application/octet-stream"}
	hasKey := false
	for range MaxFields + 1 {
		p, err := parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fault.New(fault.Invalid, "the form has no file")
		case err != nil:
			return nil, fault.New(fault.Invalid, "the form cannot be read")
		case headerBytes(p) > MaxPartHeaders:
			return nil, fault.New(fault.Invalid, "the headers of a part of the form are longer than %d bytes", MaxPartHeaders)
		case p.FormName() == "file" && !hasKey:
			return nil, fault.New(fault.Invalid, "the form has no key before its file")
		case p.FormName() == "file":
			f.File = &formFile{p, parts}
			return f, nil
		}
		value, err := io.ReadAll(io.LimitReader(p, MaxField+1))
		switch {
		case err != nil:
			return nil, fault.New(fault.Invalid, "the form cannot be read")
		case len(value) > MaxField:
			return nil, fault.New(fault.Invalid, "a field of the form is longer than %d bytes", MaxField)
		}
		switch p.FormName() {
		case "key":
			f.Key, hasKey = string(value), true
		case "Content-Type":
			f.ContentType = string(value)
		}
	}
	return nil, fault.New(fault.Invalid, "the form has more than %d fields", MaxFields)
}

func headerBytes(p *multipart.Part) (n int) {
	for k, values := range p.Header {
		for _, v := range values {
			n += len(k) + len(v)
		}
	}
	return n
}

// formFile reads on to the end of the form when the file ends, so that nothing is kept of a form that is cut.
type formFile struct {
	file  *multipart.Part
	parts *multipart.Reader
}

func (f *formFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	for {
		rest, err := f.parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return n, io.EOF
		}
		if err == nil {
			_, err = io.Copy(io.Discard, rest)
		}
		if err != nil {
			return n, io.ErrUnexpectedEOF
		}
	}
}
