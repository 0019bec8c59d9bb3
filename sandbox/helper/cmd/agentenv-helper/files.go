//go:build linux

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"agentenv/sandbox/helper/tree"
	"agentenv/sandbox/helper/wire"
)

// send lists or packs the roots of q. With q.Ask it lists first and sends the bodies of what was not skipped.
func send(q wire.Request, in *wire.Reader, out *wire.Writer) error {
	roots := make([]string, len(q.Roots))
	for i, r := range q.Roots {
		roots[i] = string(r)
	}
	o := tree.Options{Follow: q.Follow, Recurse: q.Recurse, Hash: q.Hash}
	var buf []byte
	item := func(e wire.Entry) error {
		buf = e.Append(buf[:0])
		return out.Put(wire.Item, buf)
	}
	if q.Mode == wire.ModeList || q.Ask {
		err := tree.Walk(roots, o, func(e wire.Entry, _ func() (*tree.Body, error)) error { return item(e) })
		if err == nil {
			err = out.Send(wire.Listed, nil)
		}
		if err != nil || q.Mode == wire.ModeList {
			return err
		}
		type key struct {
			root int
			name string
		}
		skip := map[key]bool{}
		for t, b, err := in.Next(); t != wire.Go; t, b, err = in.Next() {
			if err != nil {
				return err
			}
			e, err := wire.ParseEntry(b)
			if err != nil {
				return err
			}
			skip[key{e.Root, e.Name}] = true
		}
		o.Skip = func(root int, name string) bool { return skip[key{root, name}] }
	}
	answers := make(chan wire.Type, 1)
	go endWithClient(in, answers)
	chunk := make([]byte, 256<<10)
	err := tree.Walk(roots, o, func(e wire.Entry, open func() (*tree.Body, error)) error {
		if open == nil || e.Err != "" {
			return item(e)
		}
		b, err := open()
		if err != nil {
			e.ErrKind, e.Err = wire.KindOf(err), err.Error()
			return item(e)
		}
		defer b.Close()
		e.Size = b.Size
		if err := item(e); err != nil {
			return err
		}
		if q.Big > 0 && e.Size >= q.Big {
			if o := b.Offer(); o.Path != "" {
				if err := out.Send(wire.Aside, o.Append(nil)); err != nil {
					return err
				}
				if <-answers == wire.Go {
					if err := b.Changed(); err != nil {
						return out.SendJSON(wire.BodyEnd, wire.Fail(err))
					}
					return out.Put(wire.BodyEnd, nil)
				}
			}
		}
		for {
			n, err := b.Read(chunk)
			if n > 0 {
				if err := out.Put(wire.Body, chunk[:n]); err != nil {
					return err
				}
			}
			if err == io.EOF {
				return out.Put(wire.BodyEnd, nil)
			}
			if err != nil {
				return out.SendJSON(wire.BodyEnd, wire.Fail(err))
			}
		}
	})
	if err != nil {
		return err
	}
	return out.Send(wire.Done, nil)
}

// endWithClient passes on the answers to what is offered aside.
func endWithClient(in *wire.Reader, answers chan<- wire.Type) {
	for {
		t, _, err := in.Next()
		if err != nil {
			os.Exit(1)
		}
		answers <- t
	}
}

// aside makes room for a file that the engine writes past this process, and gives it its name afterwards.
func aside(q wire.Request, in *wire.Reader, out *wire.Writer) error {
	a, err := tree.Begin(string(q.Dir), string(q.Name))
	if err != nil {
		return err
	}
	err = out.Send(wire.Aside, a.Offer().Append(nil))
	if err == nil {
		var t wire.Type
		if t, _, err = in.Next(); t == wire.Go && err == nil {
			e, err := a.Finish(fs.FileMode(q.Perm))
			if err != nil {
				return err
			}
			if err := out.Put(wire.Item, e.Append(nil)); err != nil {
				return err
			}
			return out.Send(wire.Done, nil)
		}
	}
	a.Drop()
	return err
}

func unpack(q wire.Request, in *wire.Reader, out *wire.Writer) error {
	files, err := tree.Unpack(string(q.Dir), &wire.DataReader{R: in})
	if err != nil {
		return err
	}
	var buf []byte
	for _, e := range files {
		buf = e.Append(buf[:0])
		if err := out.Put(wire.Item, buf); err != nil {
			return err
		}
	}
	return out.Send(wire.Done, nil)
}

func look(q wire.Request, out *wire.Writer) error {
	for _, n := range q.Names {
		if p, err := find(n, os.Getenv("PATH")); err == nil {
			return out.Send(wire.Done, []byte(p))
		}
	}
	return &wire.Failure{Kind: "not found", Msg: "there is no " + strings.Join(q.Names, " and no ") + " on PATH"}
}

// find returns the absolute path of an executable file, looked up on path when name has no slash.
func find(name, path string) (string, error) {
	const executable = 1 // X_OK
	check := func(p string) error {
		fi, err := os.Stat(p)
		switch {
		case err != nil:
			return err
		case fi.IsDir():
			return syscall.EACCES
		}
		return syscall.Access(p, executable)
	}
	if strings.Contains(name, "/") {
		err := check(name)
		if err == nil {
			return name, nil
		}
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return "", &wire.Failure{Kind: wire.KindOf(err), Msg: "cannot run " + name + ": " + err.Error()}
	}
	if name != "" {
		for _, d := range filepath.SplitList(path) {
			if d == "" {
				d = "."
			}
			p := filepath.Join(d, name)
			if check(p) == nil {
				if filepath.IsAbs(p) {
					return p, nil
				}
				return filepath.Abs(p)
			}
		}
	}
	return "", &wire.Failure{Kind: "not found", Msg: "there is no program " + name + " on PATH"}
}
