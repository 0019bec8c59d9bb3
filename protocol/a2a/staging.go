package a2a

import (
	"context"

	"agentenv/protocol/card"
	"agentenv/protocol/staging"
)

// stage adds the store in which objects for the agent are put where it reaches no other, unless the settings want none. Who knows the
// unguessable path of an object may use it, so the token is not asked. An image without a folder for temporary files is no reason not to
// start: the agent then has no staging, and the log says why.
func (s *Server) stage() error {
	if s.settings.StagingMaxBytes < 0 {
		return nil
	}
	store, err := staging.Open(s.settings.StagingDir, s.settings.StagingMaxBytes)
	if err != nil && s.settings.StagingDir == "" {
		s.settings.Log.Warn("the agent has no staging: name a folder it may write, by AGENTENV_STAGING_DIR, if it shall have", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	end := func(context.Context) error { return store.Close() }
	s.closers = append(s.closers, end)
	return s.extend(&entry{endpoint: staging.Endpoint, ext: Extension{URI: card.Staging, Description: "Stage objects for the agent",
		Params: map[string]any{"max_bytes": store.MaxBytes()},
		Mounts: map[string]Mount{staging.Endpoint + "/": {Handler: staging.Handler(store), Open: true}}}})
}
