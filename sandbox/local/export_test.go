package local

import "time"

// DockerWithin sets how long a container's own Docker Engine may take until it answers.
func (p *Provider) DockerWithin(d time.Duration) { p.dockerLimit = d }
