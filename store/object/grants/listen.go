package grants

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"agentenv/fault"
)

// start opens the server once; a failed start is tried again at the next grant.
func (s *Server) start(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return "", fault.New(fault.Unavailable, "the server of grants has ended")
	case s.base != "":
		return s.base, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.vouch(); err != nil {
		return "", err
	}
	hosts := s.hosts(ctx)
	cert, err := s.ca.serve(s.o.Now(), append([]string{s.o.Advertise}, hosts...)...)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "a certificate for the server of grants")
	}
	list, err := listen(ctx, hosts, 0)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the server of grants cannot listen on %v; set grant_bind_host to an address of this machine", hosts)
	}
	s.settings = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	s.serve(list)
	_, port, _ := net.SplitHostPort(list[0].Addr().String())
	s.base = join(s.o.Advertise, port)
	s.o.Log.Debug("grants are served", "at", s.base, "listening", s.bound)
	return s.base, nil
}

// also listens on one port more.
func (s *Server) also(ctx context.Context, port int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[port] || s.isClosed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	list, err := listen(ctx, s.hosts(ctx), port)
	if err != nil {
		return fault.Wrap(fault.Conflict, err, "port %d, at which a permission of an earlier process is used, cannot be listened on", port)
	}
	s.serve(list)
	return nil
}

// serve answers on listeners until Close. The lock must be held.
func (s *Server) serve(list []net.Listener) {
	for _, l := range list {
		h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
		s.servers = append(s.servers, h)
		s.serving.Go(func() { _ = h.Serve(tls.NewListener(l, s.settings)) })
		s.bound = append(s.bound, l.Addr().String())
		s.ports[l.Addr().(*net.TCPAddr).Port] = true
	}
}

// hosts returns the addresses to listen on.
func (s *Server) hosts(ctx context.Context) []string {
	const loopback = "127.0.0.1"
	if s.o.Bind != "" {
		return []string{s.o.Bind}
	}
	if s.o.Bridge == nil {
		return []string{loopback}
	}
	bridge, err := s.o.Bridge(ctx)
	if err != nil || bridge == "" {
		s.o.Log.Warn("no address is known by which containers reach this machine, so grants reach this machine alone; set grant_bind_host to one", "error", err)
		return []string{loopback}
	}
	if bridge == loopback {
		return []string{loopback}
	}
	return []string{bridge, loopback}
}

// listen opens one port on all hosts; 0 = any.
func listen(ctx context.Context, hosts []string, wanted int) (list []net.Listener, err error) {
	const tries = 5
	for range tries {
		port := wanted
		for _, h := range hosts {
			l, lerr := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(h, strconv.Itoa(port)))
			if lerr != nil {
				err = lerr
				for _, l := range list {
					err = errors.Join(err, l.Close())
				}
				list = nil
				break
			}
			list = append(list, l)
			port = l.Addr().(*net.TCPAddr).Port
		}
		if list != nil {
			return list, nil
		}
	}
	return nil, err
}
