package store

import (
	"maps"
	"slices"

	"agentenv/fault"
)

// Alias is a short name that an installed bundle gives to one of its agents or environments.
type Alias struct {
	Name   string // "echo"
	ID     string // what it stands for
	Bundle string // who gives it, for people: "agentenv-framework's echo bundle"
}

// Unpinned refuses (Invalid) an alias that is used with a version: what it stands for has whichever its bundle was last written at.
func (a Alias) Unpinned() error {
	return fault.New(fault.Invalid, "'%s' is an alias of %s, which comes with %s, so it has no fixed version; drop the pin", a.Name, a.ID, a.Bundle)
}

// Unwritten is the NotFound error for an alias of what is in no store yet.
func (a Alias) Unwritten() error {
	return fault.New(fault.NotFound, "'%s' is an alias of %s, which comes with %s and is not in the store yet: an `agent-env run` of a bundle that uses it writes it", a.Name, a.ID, a.Bundle)
}

// Note says what an alias stands for, in a line for people.
func (a Alias) Note() string {
	return a.Name + " → " + a.ID + " (the alias " + a.Bundle + " gives it)"
}

// Aliases are the short names of one kind of entity. They never change and are safe for concurrent use; nil has none.
type Aliases struct {
	names   map[string]Alias
	refused map[string]string
}

// NewAliases returns the aliases in list. refused holds names that stand for nothing, with the reason for people.
func NewAliases(list []Alias, refused map[string]string) *Aliases {
	a := &Aliases{names: map[string]Alias{}, refused: maps.Clone(refused)}
	for _, one := range list {
		a.names[one.Name] = one
	}
	return a
}

// Find returns what a name stands for, ok false when it is no alias. A refused one is an Invalid error that says why.
func (a *Aliases) Find(name string) (found Alias, ok bool, err error) {
	if a == nil {
		return Alias{}, false, nil
	}
	if why := a.refused[name]; why != "" {
		return Alias{}, false, fault.New(fault.Invalid, "the alias '%s' names nothing: %s", name, why)
	}
	found, ok = a.names[name]
	return found, ok, nil
}

// Refused returns the names that stand for nothing, with the reasons. It is the caller's own.
func (a *Aliases) Refused() map[string]string {
	if a == nil {
		return nil
	}
	return maps.Clone(a.refused)
}

// Near returns up to three aliases that name may be a misspelling of.
func (a *Aliases) Near(name string) []string {
	if a == nil {
		return nil
	}
	return Near(name, slices.Sorted(maps.Keys(a.names)))
}
