package wire_test

import (
	"bytes"
	"io"
	"testing"

	"agentenv/sandbox/helper/wire"
)

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	w.Put(wire.Out, []byte("x"))
	w.SendJSON(wire.Exit, wire.ExitStatus{Code: 3})
	f.Add(b.Bytes())
	f.Add([]byte("Q\xff\xff\xff\xff"))
	f.Add([]byte("I\x00\x00\x00\x02a"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := wire.NewReader(bytes.NewReader(in))
		total := 0
		for {
			_, p, err := r.Next()
			if err != nil {
				break
			}
			total += 5 + len(p)
		}
		if total > len(in) {
			t.Errorf("%d bytes of frames in %d", total, len(in))
		}
	})
}

func FuzzEntry(f *testing.F) {
	e := wire.Entry{Root: 2, Name: "a\nb\xff", Kind: wire.KindFile, Size: 1 << 40, Mode: 0o4755, UID: 7, GID: 9, Link: "l", SHA256: "00", ErrKind: "denied", Err: "no"}
	f.Add(e.Append(nil))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := wire.ParseEntry(in)
		if err != nil {
			return
		}
		again, err := wire.ParseEntry(e.Append(nil))
		if err != nil || again != e {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
	})
}

func FuzzOffer(f *testing.F) {
	f.Add(wire.Offer{Path: "/a\nb", Dev: 1 << 40, Ino: 7}.Append(nil))
	f.Add([]byte("/a"))
	f.Add([]byte("/a\x001:"))
	f.Fuzz(func(t *testing.T, in []byte) {
		o := wire.ParseOffer(in)
		again := wire.ParseOffer(o.Append(nil))
		if o.Ino != 0 && again != o || again.Path != o.Path || again.Ino != o.Ino {
			t.Errorf("%+v became %+v", o, again)
		}
	})
}

func TestDataReader(t *testing.T) {
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	w.Put(wire.Data, []byte("ab"))
	w.Put(wire.Data, nil)
	w.Send(wire.Data, []byte("c"))
	cut := append([]byte{}, b.Bytes()...)
	w.Send(wire.End, nil)
	if got, err := io.ReadAll(&wire.DataReader{R: wire.NewReader(&b)}); string(got) != "abc" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := io.ReadAll(&wire.DataReader{R: wire.NewReader(bytes.NewReader(cut))}); string(got) != "abc" || err != io.ErrUnexpectedEOF {
		t.Errorf("without its end: %q, %v", got, err)
	}
}
