package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv/store"
)

// keptLogs is how long the log of a run stays.
const keptLogs = 30 * 24 * time.Hour

// runLogs keeps a log file for each run: every record that carries an "instance" goes to that run's file, whatever its level
// but debug (which needs --verbose); warnings also go to the display.
type runLogs struct {
	dir  string // "" = no files
	show *display
	min  slog.Level

	mu    sync.Mutex
	files map[string]*runLog
	swept bool
}

type runLog struct {
	path    string
	file    *os.File
	handler slog.Handler
}

func newRunLogs(a *App, show *display) *runLogs {
	l := &runLogs{show: show, min: slog.LevelInfo, files: map[string]*runLog{}}
	if a.verbose {
		l.min = slog.LevelDebug
	}
	return l
}

func (l *runLogs) logger() *slog.Logger { return slog.New(&runHandler{logs: l}) }

// of returns the log file of a run, "" when there is none.
func (l *runLogs) of(instance string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[instance]; f != nil {
		return f.path
	}
	return ""
}

func (l *runLogs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if f.file != nil {
			f.file.Close()
		}
	}
}

// open returns the log of a run. A file that cannot be made costs the log, not the run.
func (l *runLogs) open(instance string) *runLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[instance]; f != nil || l.dir == "" {
		return f
	}
	l.sweep()
	f := &runLog{path: logFile(l.dir, instance)}
	l.files[instance] = f
	if err := os.MkdirAll(l.dir, 0o700); err == nil {
		f.file, err = os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			f.handler = slog.NewTextHandler(f.file, &slog.HandlerOptions{Level: slog.LevelDebug})
		}
	}
	return f
}

// logFile is where the log of a run lies.
func logFile(dir, instance string) string {
	return filepath.Join(dir, strings.ReplaceAll(store.FSSafe(instance), "/", "-")+".log")
}

// sweep removes logs of long ago, once a process.
func (l *runLogs) sweep() {
	if l.swept {
		return
	}
	l.swept = true
	entries, _ := os.ReadDir(l.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".log") && time.Since(info.ModTime()) > keptLogs {
			os.Remove(filepath.Join(l.dir, e.Name()))
		}
	}
}

// runHandler sends records where they belong.
type runHandler struct {
	logs     *runLogs
	attrs    []slog.Attr
	instance string
}

// Enabled implements slog.Handler.
func (h *runHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.logs.min }

// WithAttrs implements slog.Handler.
func (h *runHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(c.attrs[:len(c.attrs):len(c.attrs)], attrs...)
	for _, a := range attrs {
		if a.Key == "instance" {
			c.instance = a.Value.String()
		}
	}
	return &c
}

// WithGroup implements slog.Handler; groups are not used here.
func (h *runHandler) WithGroup(string) slog.Handler { return h }

// Handle implements slog.Handler.
func (h *runHandler) Handle(ctx context.Context, r slog.Record) error {
	instance := h.instance
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "instance" {
			instance = a.Value.String()
		}
		return true
	})
	full := r.Clone()
	full.AddAttrs(h.attrs...)
	if instance != "" {
		if f := h.logs.open(instance); f != nil && f.handler != nil {
			_ = f.handler.Handle(ctx, full)
		}
	}
	if r.Level >= slog.LevelWarn || h.logs.min == slog.LevelDebug {
		h.logs.show.Note(oneLine(full, instance, h.logs.min == slog.LevelDebug))
	}
	return nil
}

// oneLine writes a record for people: the message, and what belongs to it.
func oneLine(r slog.Record, instance string, detail bool) string {
	var b strings.Builder
	if !detail && instance != "" {
		b.WriteString("[" + instance[strings.LastIndexByte(instance, '/')+1:] + "] ")
	}
	if detail {
		b.WriteString(r.Time.Format("15:04:05.000 ") + r.Level.String() + " ")
	}
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "instance" && !detail || a.Value.String() == "" {
			return true
		}
		b.WriteString("  " + a.Key + "=" + strings.ReplaceAll(a.Value.String(), "\n", `\n`))
		return true
	})
	return b.String()
}
