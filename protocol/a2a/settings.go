package a2a

import (
	"log/slog"
	"strconv"
	"time"

	"agentenv/fault"
	"agentenv/protocol/staging"
)

// Settings are what a server is given from outside; the zero value serves without a token and logs nowhere.
type Settings struct {
	Host string // "" = 0.0.0.0
	Port int    // for Main and loopback URLs; 0 = 8000
	// Token, when set, is asked of every request but those for the card and /health, as `Authorization: Bearer`. It is a secret.
	Token    string
	Log      *slog.Logger     // nil = none
	Now      func() time.Time // nil = time.Now
	MaxBody  int64            // bytes of a message's request; 0 = 64 MiB. Extensions take at most 16 MiB of it
	Contexts int              // contexts remembered, with their tasks, sessions and trajectories; 0 = 1024
	// StagingDir is the folder of the staging store, "" = a fresh temporary one that Close removes; where there can be none, the agent has
	// no staging. StagingMaxBytes is what the store holds at most: 0 = 16 GiB, negative = no staging.
	StagingDir      string
	StagingMaxBytes int64
	// JournalDir is a folder of this agent alone in which tasks and their trajectories are kept, so that they are known when the agent was
	// started again: those that went on have then failed. "" = they are kept in memory only.
	JournalDir string
}

const (
	defaultPort    = 8000
	defaultMaxBody = 64 << 20
	maxExtBody     = 16 << 20
)

// FromEnv returns the settings that a container's environment names: A2A_HOST, A2A_PORT, AGENTENV_A2A_TOKEN, AGENTENV_JOURNAL_DIR,
// AGENTENV_STAGING_DIR and AGENTENV_STAGING_MAX_BYTES (0 = no staging). getenv is os.Getenv or its like. A port that is no port, and a size that is none, are
// Invalid errors.
func FromEnv(getenv func(string) string) (Settings, error) {
	s := Settings{Host: getenv("A2A_HOST"), Token: getenv("AGENTENV_A2A_TOKEN"), StagingDir: getenv("AGENTENV_STAGING_DIR"), JournalDir: getenv("AGENTENV_JOURNAL_DIR")}
	if p := getenv("A2A_PORT"); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Settings{}, fault.New(fault.Invalid, "A2A_PORT must be a port, 1 to 65535, not %q", p)
		}
		s.Port = int(n)
	}
	if b := getenv("AGENTENV_STAGING_MAX_BYTES"); b != "" {
		n, err := strconv.ParseInt(b, 10, 64)
		if err != nil || n < 0 {
			return Settings{}, fault.New(fault.Invalid, "AGENTENV_STAGING_MAX_BYTES must be a number of bytes, 0 for no staging, not %q", b)
		}
		if s.StagingMaxBytes = n; n == 0 {
			s.StagingMaxBytes = -1
		}
	}
	return s, nil
}

func (s Settings) filled() Settings {
	if s.Host == "" {
		s.Host = "0.0.0.0"
	}
	if s.Port == 0 {
		s.Port = defaultPort
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.MaxBody <= 0 {
		s.MaxBody = defaultMaxBody
	}
	if s.Contexts <= 0 {
		s.Contexts = 1024
	}
	if s.StagingMaxBytes == 0 {
		s.StagingMaxBytes = staging.DefaultMaxBytes
	}
	return s
}
