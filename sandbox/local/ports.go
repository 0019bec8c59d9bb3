package local

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/sandbox/engine"
)

const (
	firstPort = 20000
	lastPort  = 29999
	portRange = lastPort - firstPort + 1
	onLinux   = runtime.GOOS == "linux"
)

// drawPorts returns n host ports that nothing listens on, after the last one that any process drew from this state folder.
func drawPorts(ctx context.Context, state string, n int) ([]int, error) {
	return draw(ctx, state, n, bindable)
}

func draw(ctx context.Context, state string, n int, bindable func(port int) (bool, error)) ([]int, error) {
	if n == 0 {
		return nil, nil
	}
	dir := filepath.Join(state, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the port file cannot be kept in the state folder")
	}
	f, err := os.OpenFile(filepath.Join(dir, "host-ports"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the port file cannot be kept in the state folder")
	}
	defer f.Close()
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return nil, fault.At(context.Cause(ctx), "wait for %s", f.Name())
		case <-time.After(5 * time.Millisecond):
		}
	}
	head := make([]byte, 16)
	k, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fault.Wrap(fault.Unavailable, err, "read %s", f.Name())
	}
	next := nextPort(string(head[:k]))
	var out []int
	for range portRange {
		port := next
		if next++; next > lastPort {
			next = firstPort
		}
		switch free, err := bindable(port); {
		case err != nil:
			return nil, fault.Wrap(fault.Unavailable, err, "try host port %d", port)
		case free:
			out = append(out, port)
		}
		if len(out) == n {
			if err := f.Truncate(0); err == nil {
				_, err = f.WriteAt([]byte(strconv.Itoa(port)), 0)
				if err == nil {
					return out, nil
				}
			}
			return nil, fault.New(fault.Unavailable, "%s cannot be written; is the disk full?", f.Name())
		}
	}
	return nil, fault.New(fault.Unavailable, "Every host port from %d to %d is in use", firstPort, lastPort)
}

func nextPort(text string) int {
	last, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || last < 0 {
		n, _ := rand.Int(rand.Reader, big.NewInt(portRange))
		return firstPort + int(n.Int64())
	}
	if last < firstPort || last >= lastPort {
		return firstPort
	}
	return last + 1
}

// bindable tries the number on every IPv4 address, without listening.
func bindable(port int) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port})
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	return err == nil, err
}

const loopback = "127.0.0.1"

// hostIPs returns the addresses that containers publish on: loopback, and what containers reach this machine by.
func hostIPs(ctx context.Context, e *engine.Engine) ([]string, error) {
	ips := []string{loopback}
	bridge, err := Bridge(ctx, e)
	if err != nil {
		return nil, err
	}
	if bridge != "" && bridge != loopback {
		ips = append(ips, bridge)
	}
	return ips, nil
}

// Bridge returns the address of this machine by which containers of an engine reach it: what host.docker.internal means to them. It is
// loopback where the engine runs them in a virtual machine that brings them there, and "" for an engine whose bridge is not on this machine.
func Bridge(ctx context.Context, e *engine.Engine) (string, error) {
	if !onLinux || e.Desktop() {
		return loopback, nil
	}
	gateway, err := e.Bridge(ctx)
	if err != nil {
		return "", err
	}
	if gateway == "" {
		gateway = docker0()
	}
	if gateway == "" || !onThisMachine(gateway) {
		return "", nil
	}
	return gateway, nil
}

// docker0 returns the address of the default bridge's interface, for engines that do not report it.
func docker0() string {
	i, err := net.InterfaceByName("docker0")
	if err != nil {
		return ""
	}
	addrs, _ := i.Addrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

// onThisMachine reports whether an interface here bears the address; that of a rootless or remote engine is elsewhere.
func onThisMachine(ip string) bool {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.String() == ip {
			return true
		}
	}
	return false
}
