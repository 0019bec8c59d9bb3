// Package document is the portable type of document stores: JSON objects in named collections. What every backend does the
// same (filters, updates, ordering, versioned entities, compare and swap, routing of @local ids) lives here; a driver is the
// few calls that differ. documenttest holds the conformance suite that every driver passes.
package document

import (
	"context"

	"agentenv/store/doc"
)

// Store is one document store. All methods are safe for concurrent use. Every single call is atomic. Errors carry a fault
// kind: Exists for a broken unique index, Invalid for a bad path or id, Unavailable when the backend cannot be reached or
// its lock is held too long (the message names the file), Conflict for a lost version race.
type Store interface {
	// FindOne returns the first document that matches, in the given order, or nil when there is none.
	FindOne(ctx context.Context, coll string, f Filter, sort ...Sort) (*doc.Object, error)
	// Query returns the documents that match, ordered, then cut by offset and limit (0 = all).
	Query(ctx context.Context, coll string, q Query) ([]*doc.Object, error)
	// Count returns how many documents match.
	Count(ctx context.Context, coll string, f Filter) (int, error)
	// FindManyByID returns, for each distinct id in the order asked, its first document; ids without one are left out.
	FindManyByID(ctx context.Context, coll, idField string, ids []string) ([]*doc.Object, error)
	// LatestVersion returns the highest `version` stored for an `id`, 0 when there is none. It creates nothing.
	LatestVersion(ctx context.Context, coll, id string) (int64, error)
	// LatestPerID filters, keeps the newest version of each id, then sorts and cuts. total counts the ids before the cut.
	LatestPerID(ctx context.Context, coll string, q LatestQuery) (page []*doc.Object, total int, err error)
	// CountDistinct returns how many distinct values idField has among the documents that match.
	CountDistinct(ctx context.Context, coll string, f Filter, idField string) (int, error)
	// Insert stores a new document. A second one under the same unique key is an Exists error.
	Insert(ctx context.Context, coll string, d *doc.Object) error
	// Update applies u to the first match and returns 1, or 0 when nothing matched (a lost compare and swap). With upsert
	// a missing document is made from the filter's equality predicates first.
	Update(ctx context.Context, coll string, f Filter, u Update, upsert bool) (int, error)
	// UpdateAndGet is Update that returns the document after the update (before it with before), nil when nothing matched.
	UpdateAndGet(ctx context.Context, coll string, f Filter, u Update, upsert, before bool) (*doc.Object, error)
	// Replace puts d in place of the first match; otherwise like Update.
	Replace(ctx context.Context, coll string, f Filter, d *doc.Object, upsert bool) (int, error)
	// Delete removes the first match and returns 1, or 0.
	Delete(ctx context.Context, coll string, f Filter) (int, error)
	// EnsureIndex declares an index; declaring it again is a no-op.
	EnsureIndex(ctx context.Context, coll string, ix Index) error
	// CheckID refuses ids that this store cannot take (Invalid), before anything else is done for them.
	CheckID(id string) error
	// Transact runs fn on a view of the store whose writes are committed together, durably, when fn returns nil, and not
	// at all otherwise. Concurrent calls may share one commit. fn must not keep the view, nor use the outer store.
	Transact(ctx context.Context, fn func(tx Store) error) error
	// Close ends the store after what is running; a second call is a no-op.
	Close() error
}

// Op is the kind of a predicate.
type Op int

// The predicates of a filter; their exact meaning (arrays, absent fields, unlike types) is that of the stored format.
const (
	Eq Op = iota
	Ne
	Gte
	Lte
	In           // Value is []any
	Exists       // Value is bool
	LteOrAbsent  // absent, null, or at most Value
	AbsentOrNull // Value is unused
)

// Pred is one predicate on a dotted path.
type Pred struct {
	Path  string
	Op    Op
	Value any // a document value
}

// Filter is the AND of its predicates; an empty filter matches everything.
type Filter []Pred

// By returns a filter of equalities from alternating paths and document values: By("id", "x", "version", doc.Int(1)).
func By(kv ...any) Filter {
	var f Filter
	for i := 0; i < len(kv); i += 2 {
		f = append(f, Pred{Path: kv[i].(string), Op: Eq, Value: kv[i+1]})
	}
	return f
}

// And returns f with one more predicate; f is not changed.
func (f Filter) And(path string, op Op, value any) Filter {
	return append(f[:len(f):len(f)], Pred{Path: path, Op: op, Value: value})
}

// Sort orders by the first value at a dotted path.
type Sort struct {
	Path string
	Desc bool
}

// Query selects documents. Limit 0 means all.
type Query struct {
	Filter        Filter
	Sort          []Sort
	Limit, Offset int
}

// LatestQuery selects the newest version per id. IDField defaults to "id", VersionField to "version".
type LatestQuery struct {
	Query
	IDField, VersionField string
}

// Update changes one document: its operators are applied in the order of the fields. A path under two operators, or one
// that is an ancestor of another, is refused (Invalid) before any write.
type Update struct {
	Set      *doc.Object // dotted path → value
	Unset    []string
	Inc      *doc.Object // dotted path → number
	AddToSet *doc.Object // dotted path → []any, each appended unless an equal element is there
	Push     *doc.Object // dotted path → []any
}

// Index is an index over top-level or dotted fields. With Expires, documents whose one indexed field holds a text that is a time
// (RFC 3339) are gone TTL seconds after it, for whoever uses a store on which the index was declared: no read or update finds them,
// and they are in no other document's way. Anything else in the field keeps its document.
type Index struct {
	Fields  []string
	Unique  bool
	Expires bool // for a single field of an index that is not unique
	TTL     int  // counts with Expires only
}
