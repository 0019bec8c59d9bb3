package config

// Problem is one thing `config check` found.
type Problem struct {
	Section string // "" for the file as a whole
	Text    string
	Warning bool // worth a look; false: what needs the section fails
}

// Check lists everything that is wrong with the configuration: a file that cannot be read, what the readers of its sections
// refuse, backends and sandbox providers this program does not have, and the warnings. References are not resolved, and
// nothing is built. It is empty for a sound configuration.
func (c *Config) Check() []Problem {
	if c.broken != nil {
		return []Problem{{Text: oneLine(c.broken.Error())}}
	}
	var out []Problem
	add := func(section string, err error) {
		if err != nil {
			out = append(out, Problem{Section: section, Text: oneLine(err.Error())})
		}
	}
	d := *c
	d.literal = true
	for _, s := range seams() {
		_, err := d.Seam(s.name)
		add(s.name, err)
	}
	for _, s := range sections() {
		err := c.check(s.name)
		if s.name == "sandbox" && err == nil {
			err = d.checkDefaults()
		}
		add(s.name, err)
	}
	tables, err := c.reportPlugins()
	add("plugins", err)
	for _, p := range tables {
		add("plugins."+p.Name, p.Err)
	}
	for _, w := range c.Warnings() {
		out = append(out, Problem{Text: w, Warning: true})
	}
	return out
}

func (c *Config) checkDefaults() error {
	s, err := c.Sandbox()
	if err != nil {
		return err
	}
	where := c.found.path + ": [sandbox] "
	if err := c.CheckProviders(s.Default, where+"default"); err != nil {
		return err
	}
	return c.CheckProviders(s.AgentDefault, where+"agent_default")
}
