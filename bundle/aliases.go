package bundle

import (
	"path/filepath"
	"regexp"

	"agentenv/config"
	"agentenv/store/doc"
)

// aliasFile gives short names to agents and envs of the bundle, for when it is installed.
const aliasFile = "aliases.toml"

var aliasName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

// alias is a short name for an entity of the bundle.
type alias struct {
	name string
	e    *Entity
}

// aliases reads aliases.toml. With a problem in it the bundle has no aliases.
func (s *scanner) aliases() {
	if !s.aliased {
		return
	}
	text, err := config.ReadFile(filepath.Join(s.b.Dir, aliasFile))
	if err != nil {
		s.names.add(aliasFile, err.Error())
		return
	}
	o, err := config.ParseTOML(text)
	if err != nil {
		s.names.add(aliasFile, err.Error())
		return
	}
	for _, table := range o.Keys() {
		store := map[string]string{"agents": StoreAgent, "envs": StoreEnv}[table]
		t := o.Obj(table)
		if store == "" || t == nil {
			s.names.add(aliasFile, "unknown table "+shown(table)+"; it takes [agents] and [envs]")
			continue
		}
		s.aliasTable(store, table, t)
	}
	if len(s.names.lines) > 0 {
		s.b.aliases = nil
	}
}

// aliasTable reads one table: the folder's name, and the list of its aliases.
func (s *scanner) aliasTable(store, table string, t *doc.Object) {
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
			s.names.add(aliasFile, at+": there is no folder "+table+"/"+printable(folder))
		} else if owner.config.Value("id") != nil {
			s.names.add(aliasFile, at+": the folder declares an id of its own, so it can have no alias")
		}
		list, ok := t.Value(folder).([]any)
		if !ok {
			s.names.add(aliasFile, at+" must be a list of aliases")
		}
		for _, v := range list {
			name, _ := v.(string)
			if !aliasName.MatchString(name) {
				s.names.add(aliasFile, at+": "+shown(name)+" is no alias: 1 to 64 of a-z, 0-9 and inner dashes")
				continue
			}
			if used[name] {
				s.names.add(aliasFile, at+": the alias "+shown(name)+" is given twice")
			}
			used[name] = true
			for _, e := range s.b.Of(store) {
				if e != owner && (e.Name == name || e.ID == name) {
					s.names.add(aliasFile, at+": the alias "+shown(name)+" is the name of "+e.Path)
				}
			}
			s.b.aliases = append(s.b.aliases, alias{name, owner})
		}
	}
}
