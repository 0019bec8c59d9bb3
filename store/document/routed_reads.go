package document

import (
	"context"
	"slices"

	"agentenv/store"
	"agentenv/store/doc"
)

// FindOne returns the first match of both stores.
func (r *Router) FindOne(ctx context.Context, coll string, f Filter, sort ...Sort) (*doc.Object, error) {
	var best *doc.Object
	for _, s := range r.readers(ctx, coll, f) {
		d, err := s.FindOne(ctx, coll, f, sort...)
		if err != nil {
			return nil, err
		}
		switch {
		case d == nil:
		case best == nil:
			best = d
		case len(sort) > 0 && compareBy(sort, nullsLow, mergedCompare)(d, best) < 0:
			best = d
		}
		if best != nil && len(sort) == 0 {
			break
		}
	}
	return best, nil
}

// Query returns the matches of both stores, merged and then cut.
func (r *Router) Query(ctx context.Context, coll string, q Query) ([]*doc.Object, error) {
	sides := r.readers(ctx, coll, q.Filter)
	if len(sides) == 1 {
		return sides[0].Query(ctx, coll, q)
	}
	each := q
	each.Offset = 0
	if q.Limit > 0 {
		each.Limit = q.Limit + max(q.Offset, 0)
	}
	var all []*doc.Object
	for _, s := range sides {
		ds, err := s.Query(ctx, coll, each)
		if err != nil {
			return nil, err
		}
		all = append(all, ds...)
	}
	if len(q.Sort) > 0 {
		slices.SortStableFunc(all, compareBy(q.Sort, nullsLow, mergedCompare))
	}
	return Window(all, q.Limit, q.Offset), nil
}

// Count counts the matches of both stores.
func (r *Router) Count(ctx context.Context, coll string, f Filter) (int, error) {
	total := 0
	for _, s := range r.readers(ctx, coll, f) {
		n, err := s.Count(ctx, coll, f)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// FindManyByID returns, for each id, the document of the first store that has one.
func (r *Router) FindManyByID(ctx context.Context, coll, idField string, ids []string) ([]*doc.Object, error) {
	found := map[string]*doc.Object{}
	for _, s := range r.sides(ctx) {
		var ask []string
		for _, id := range ids {
			other := r.only == nil && idField == "id" && r.entities.has(coll) && store.IsLocal(id) != s.local
			if found[id] == nil && !other {
				ask = append(ask, id)
			}
		}
		if len(ask) == 0 {
			continue
		}
		ds, err := s.FindManyByID(ctx, coll, idField, ask)
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			for _, v := range Resolve(d, idField) {
				if id, ok := v.(string); ok && found[id] == nil {
					found[id] = d
				}
			}
		}
	}
	var out []*doc.Object
	for _, id := range ids {
		if d := found[id]; d != nil {
			out = append(out, d)
			delete(found, id)
		}
	}
	return out, nil
}

// LatestVersion returns the highest version of id in the stores that can hold it.
func (r *Router) LatestVersion(ctx context.Context, coll, id string) (int64, error) {
	var highest int64
	for _, s := range r.readers(ctx, coll, By("id", id)) {
		n, err := s.LatestVersion(ctx, coll, id)
		if err != nil {
			return 0, err
		}
		highest = max(highest, n)
	}
	return highest, nil
}

// LatestPerID returns the newest version of each id of both stores.
func (r *Router) LatestPerID(ctx context.Context, coll string, q LatestQuery) ([]*doc.Object, int, error) {
	sides := r.readers(ctx, coll, q.Filter)
	if len(sides) == 1 {
		return sides[0].LatestPerID(ctx, coll, q)
	}
	id, _ := q.Fields()
	apart := id == "id" && r.entities.has(coll) // no id is in both stores
	each := q
	each.Offset, each.Limit = 0, 0
	if apart && q.Limit > 0 {
		each.Limit = q.Limit + max(q.Offset, 0)
	}
	var all []*doc.Object
	total := 0
	for _, s := range sides {
		ds, n, err := s.LatestPerID(ctx, coll, each)
		if err != nil {
			return nil, 0, err
		}
		all, total = append(all, ds...), total+n
	}
	if !apart {
		unsorted := q
		unsorted.Sort, unsorted.Limit, unsorted.Offset = nil, 0, 0
		all, total = Latest(all, unsorted)
	}
	if len(q.Sort) > 0 {
		slices.SortStableFunc(all, compareBy(q.Sort, nullsLast, mergedCompare))
	}
	return Window(all, q.Limit, q.Offset), total, nil
}

// CountDistinct counts the distinct values of both stores.
func (r *Router) CountDistinct(ctx context.Context, coll string, f Filter, idField string) (int, error) {
	sides := r.readers(ctx, coll, f)
	if len(sides) == 1 || idField == "id" && r.entities.has(coll) {
		total := 0
		for _, s := range sides {
			n, err := s.CountDistinct(ctx, coll, f, idField)
			if err != nil {
				return 0, err
			}
			total += n
		}
		return total, nil
	}
	ds, err := r.Query(ctx, coll, Query{Filter: f})
	if err != nil {
		return 0, err
	}
	return Distinct(ds, idField), nil
}
