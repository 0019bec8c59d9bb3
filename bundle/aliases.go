package bundle

import (
	"path/filepath"
	"regexp"

	"agentenv/config"
)

var aliasName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

// aliases checks aliases.toml: what it may say is known, even though nothing here resolves an alias yet.
func (s *scanner) aliases() {
	const where = "aliases.toml"
	text, err := config.ReadFile(filepath.Join(s.b.Dir, where))
	if err != nil {
		s.p.add(where, err.Error())
		return
	}
	o, err := config.ParseTOML(text)
	if err != nil {
		s.p.add(where, err.Error())
		return
	}
	for _, table := range o.Keys() {
		store := map[string]string{"agents": StoreAgent, "envs": StoreEnv}[table]
		t := o.Obj(table)
		if store == "" || t == nil {
			s.p.add(where, "unknown table "+shown(table)+"; it takes [agents] and [envs]")
			continue
		}
		used := map[string]bool{}
		for _, folder := range t.Keys() {
			at := table + "." + printable(folder)
			var owner *Entity
			for _, e := range s.b.Of(store) {
				if e.Name == folder {
					owner = e
				}
			}
			if owner == nil {
				s.p.add(where, at+": there is no folder "+table+"/"+printable(folder))
			} else if owner.config.Value("id") != nil {
				s.p.add(where, at+": the folder declares an id of its own, so it can have no alias")
			}
			list, ok := t.Value(folder).([]any)
			if !ok {
				s.p.add(where, at+" must be a list of aliases")
			}
			for _, v := range list {
				alias, _ := v.(string)
				if !aliasName.MatchString(alias) {
					s.p.add(where, at+": "+shown(alias)+" is no alias: 1 to 64 of a-z, 0-9 and inner dashes")
					continue
				}
				if used[alias] {
					s.p.add(where, at+": the alias "+shown(alias)+" is given twice")
				}
				used[alias] = true
				for _, e := range s.b.Of(store) {
					if e != owner && (e.Name == alias || e.ID == alias) {
						s.p.add(where, at+": the alias "+shown(alias)+" is the name of "+e.Path)
					}
				}
			}
		}
	}
}
