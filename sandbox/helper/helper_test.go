package helper_test

import (
	"bytes"
	"debug/elf"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/helper"
)

func TestBinary(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "x86_64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "aarch64": elf.EM_AARCH64} {
		b, digest, err := helper.Binary(arch)
		if err != nil || len(digest) != 64 {
			t.Fatal(digest, err)
		}
		if len(b) > 3<<20 {
			t.Errorf("%s: %d bytes, want less than 3 MiB", arch, len(b))
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil || f.Machine != machine {
			t.Fatalf("%s: %v %v", arch, f.Machine, err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is not static", arch)
			}
		}
	}
	if _, _, err := helper.Binary("s390x"); !fault.Is(err, fault.Unsupported) {
		t.Errorf("s390x: %v", err)
	}
}
