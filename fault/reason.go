package fault

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Reason returns the cause of a file error without the path and the call, which the message around it names.
func Reason(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	var s *os.SyscallError
	switch {
	case errors.As(err, &p):
		return Reason(p.Err)
	case errors.As(err, &l):
		return Reason(l.Err)
	case errors.As(err, &s):
		return Reason(s.Err)
	case errors.Is(err, syscall.ELOOP):
		return New(Invalid, "a loop of symlinks")
	}
	return err
}
