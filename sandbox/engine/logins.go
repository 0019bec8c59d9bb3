package engine

import "github.com/docker/cli/cli/config/configfile"

// Logins returns the registry logins of the user's Docker configuration, for builds. It is shared and must not be changed.
func (e *Engine) Logins() *configfile.ConfigFile { return e.conf }
