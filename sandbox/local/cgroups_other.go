//go:build !linux

package local

import (
	"errors"
	"os/exec"
)

func ownCgroup() (string, error) { return "", errors.ErrUnsupported }

func startIn(*exec.Cmd, string) error { return errors.ErrUnsupported }
