package helper

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"agentenv/fault"
)

// Install puts the helper for this machine into dir, which is made where absent, and returns its path. A copy that is there
// is used again: its name tells the version. Several processes may install at once. On another system than Linux, or
// another architecture than Binary knows, the error is Unsupported; a folder that cannot be written gives Unavailable.
func Install(dir string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fault.New(fault.Unsupported, "agent-env's helper runs on Linux only")
	}
	packed, err := packedFor(runtime.GOARCH)
	if err != nil {
		return "", fault.New(fault.Unsupported, "agent-env's helper does not run on %s", runtime.GOARCH)
	}
	sum := sha256.Sum256(packed)
	at := filepath.Join(dir, "helper-"+hex.EncodeToString(sum[:6]))
	size := int64(binary.LittleEndian.Uint32(packed[len(packed)-4:])) // as the end of a gzip stream has it
	if fi, err := os.Lstat(at); err == nil && fi.Mode().IsRegular() && fi.Size() == size && fi.Mode()&0o100 != 0 {
		return at, nil
	}
	program, _, err := Binary(runtime.GOARCH)
	if err != nil {
		return "", err
	}
	if err := write(dir, at, program); err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the helper cannot be kept in %s", dir)
	}
	return at, nil
}

func write(dir, at string, program []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// A child forked meanwhile would hold the file open for writing, and the system runs no such file.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(dir, ".helper-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(program)
	if err == nil {
		err = f.Chmod(0o700)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), at)
	}
	return err
}
