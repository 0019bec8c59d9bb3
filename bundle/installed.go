package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"agentenv/store"
)

// Installed is the bundles that are installed, by distribution. Tasks of other bundles may name their agents and artifacts by id, and
// their agents by the aliases of their aliases.toml. It is safe for concurrent use; nil has none.
type Installed struct {
	catalogs []*Catalog
	read     func() *listing
}

// listing is what installed bundles hold, as far as names go.
type listing struct {
	homes      map[string]home // by "<store> <id>"
	agents     []InstalledAgent
	unreadable []string // why bundles cannot be read
	nameless   []string // why bundles give no aliases
	aliases    map[string]*store.Aliases
}

// home is the installed bundle of an entity.
type home struct {
	c    *Catalog
	name string
}

// InstalledAgent is an agent of an installed bundle.
type InstalledAgent struct {
	ID      string
	Package string // the distribution
	Version string // of the distribution
	Bundle  string
	Aliases []string // sorted
}

// NewInstalled returns the installed bundles of these distributions. Those of own, the program's, are preferred where others give the same alias. The
// bundles are read when something is first asked of them, once.
func NewInstalled(own *Catalog, others ...*Catalog) *Installed {
	in := &Installed{catalogs: append([]*Catalog{own}, others...)}
	in.read = sync.OnceValue(in.list)
	return in
}

// Agents returns the agents of the installed bundles, by distribution and id, the program's own first.
func (in *Installed) Agents() []InstalledAgent {
	if in == nil {
		return nil
	}
	return slices.Clone(in.read().agents)
}

// Unreadable returns how many installed bundles cannot be read, and lines for people: why each cannot, or why it gives no aliases.
func (in *Installed) Unreadable() (bundles int, lines []string) {
	if in == nil {
		return 0, nil
	}
	l := in.read()
	return len(l.unreadable), slices.Concat(l.unreadable, l.nameless)
}

// AgentAliases returns the aliases of agents.
func (in *Installed) AgentAliases() *store.Aliases { return in.aliasesOf(StoreAgent) }

// EnvAliases returns the aliases of envs.
func (in *Installed) EnvAliases() *store.Aliases { return in.aliasesOf(StoreEnv) }

func (in *Installed) aliasesOf(kind string) *store.Aliases {
	if in == nil {
		return nil
	}
	return in.read().aliases[kind]
}

// home returns the installed bundle that defines an entity.
func (in *Installed) home(kind, id string) (home, bool) {
	if in == nil || !store.IsLocal(id) {
		return home{}, false
	}
	h, ok := in.read().homes[kind+" "+id]
	return h, ok
}

// given is an alias and who gives it.
type given struct {
	store.Alias
	of *Catalog
}

// list reads the bundles.
func (in *Installed) list() *listing {
	l := &listing{homes: map[string]home{}, aliases: map[string]*store.Aliases{}}
	names := map[string]map[string][]given{StoreAgent: {}, StoreEnv: {}} // by kind and alias
	for _, c := range in.catalogs {
		for _, name := range c.names {
			b, badAliases, err := c.glance(name)
			if err != nil {
				l.unreadable = append(l.unreadable, c.qualified(name)+": "+oneLine(err.Error()))
				continue
			}
			if badAliases != nil {
				l.nameless = append(l.nameless, c.qualified(name)+" gives no aliases: "+oneLine(badAliases.Error()))
			}
			for _, e := range b.Entities {
				l.homes[e.Store+" "+e.ID] = home{c, name}
			}
			for _, e := range b.Of(StoreAgent) {
				l.agents = append(l.agents, InstalledAgent{ID: e.ID, Package: c.dist, Version: c.version, Bundle: name})
			}
			for _, al := range b.aliases {
				kind := names[al.e.Store]
				kind[al.name] = append(kind[al.name], given{store.Alias{Name: al.name, ID: al.e.ID, Bundle: c.bundleOf(name)}, c})
			}
		}
	}
	slices.SortStableFunc(l.agents, func(a, b InstalledAgent) int {
		return cmp.Or(cmp.Compare(in.rank(a.Package), in.rank(b.Package)), cmp.Compare(a.Package, b.Package), cmp.Compare(a.ID, b.ID))
	})
	for kind, all := range names {
		l.aliases[kind] = in.settle(all)
	}
	for i := range l.agents {
		a := &l.agents[i]
		for _, name := range slices.Sorted(maps.Keys(names[StoreAgent])) {
			if al, ok, _ := l.aliases[StoreAgent].Find(name); ok && al.ID == a.ID {
				a.Aliases = append(a.Aliases, name)
			}
		}
	}
	return l
}

// rank puts the program's own distribution before the others.
func (in *Installed) rank(dist string) int {
	if in.catalogs[0].dist == dist {
		return 0
	}
	return 1
}

// settle decides what each alias stands for: the program's own win, and one that several bundles give names nothing.
func (in *Installed) settle(all map[string][]given) *store.Aliases {
	var list []store.Alias
	refused := map[string]string{}
	for name, givers := range all {
		if own := slices.DeleteFunc(slices.Clone(givers), func(g given) bool { return g.of != in.catalogs[0] }); len(own) > 0 {
			givers = own
		}
		if len(givers) == 1 {
			list = append(list, givers[0].Alias)
			continue
		}
		var from []string
		for _, g := range givers {
			from = append(from, fmt.Sprintf("%s, for %s", g.Bundle, g.ID))
		}
		slices.Sort(from)
		refused[name] = "several installed bundles give it (" + strings.Join(from, "; ") + "); use an id"
	}
	return store.NewAliases(list, refused)
}

// glance reads a bundle for its names: what it holds, and what is wrong with its aliases. Its files are gone when it returns.
func (c *Catalog) glance(name string) (b *Bundle, badAliases, err error) {
	dir, err := c.layOut(name)
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	s := scan(dir, c.root(name), name)
	return s.b, s.names.err(), s.p.err()
}

// open lays a bundle out with all its files, until release. One whose aliases.toml has a problem gives no aliases.
func (c *Catalog) open(name string) (b *Bundle, release func(), err error) {
	dir, err := c.layOut(name)
	if err != nil {
		return nil, nil, err
	}
	if err = c.make(name, dir); err == nil {
		s := scan(dir, c.root(name), name)
		b, err = s.b, s.p.err()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return b, func() { os.RemoveAll(dir) }, nil
}

// qualified is a bundle's name with its distribution.
func (c *Catalog) qualified(name string) string { return c.dist + "/" + name }

// bundleOf names a bundle for people.
func (c *Catalog) bundleOf(name string) string { return c.dist + "'s " + name + " bundle" }

func (c *Catalog) root(name string) string { return store.LocalPrefix + c.qualified(name) }
