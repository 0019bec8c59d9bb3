package document

import (
	"context"
	"errors"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Transact runs fn on a routed view. The transaction opens with the first write, in the store which that write goes to; a
// write to the other store in the same transaction is refused (Unsupported), since the two cannot commit together. Reads
// before the first write, and reads of the other store, see what is committed.
func (r *Router) Transact(ctx context.Context, fn func(tx Store) error) error {
	if r.only != nil {
		only := *r.only
		return only.Store.Transact(ctx, func(tx Store) error { return fn(r.on(side{tx, only.local})) })
	}
	t := &lazyTx{ctx: ctx}
	view := *r
	view.configured = &txSide{Store: r.configured, tx: t}
	view.local = &txSide{Store: r.local, tx: t}
	ok := false
	defer func() {
		if !ok {
			_ = t.end(errAbandoned)
		}
	}()
	err := fn(&view)
	ok = true
	if err != nil {
		_ = t.end(err)
		return err
	}
	return t.end(nil)
}

var errAbandoned = errors.New("the transaction was abandoned")

// lazyTx is a transaction that is opened by its first write. The store runs it in a goroutine that only waits for the
// verdict; end waits for that goroutine.
type lazyTx struct {
	ctx     context.Context
	of      *txSide
	view    Store
	verdict chan error
	result  chan error
}

func (t *lazyTx) open(s *txSide) (Store, error) {
	if t.of == s {
		return t.view, nil
	}
	if t.of != nil {
		return nil, fault.New(fault.Unsupported, "one transaction cannot write to the configured and to the local store")
	}
	t.verdict, t.result = make(chan error), make(chan error, 1)
	views := make(chan Store, 1)
	go func() {
		t.result <- s.Store.Transact(t.ctx, func(tx Store) error {
			views <- tx
			return <-t.verdict
		})
	}()
	select {
	case t.view = <-views:
		t.of = s
		return t.view, nil
	case err := <-t.result:
		return nil, err
	}
}

func (t *lazyTx) end(err error) error {
	if t.of == nil {
		return nil
	}
	t.verdict <- err
	return <-t.result
}

// txSide is one store inside a lazyTx: writes open the transaction, reads use it once it is open.
type txSide struct {
	Store
	tx *lazyTx
}

func (s *txSide) reading() Store {
	if s.tx.of == s {
		return s.tx.view
	}
	return s.Store
}

func (s *txSide) FindOne(ctx context.Context, coll string, f Filter, sort ...Sort) (*doc.Object, error) {
	return s.reading().FindOne(ctx, coll, f, sort...)
}

func (s *txSide) Query(ctx context.Context, coll string, q Query) ([]*doc.Object, error) {
	return s.reading().Query(ctx, coll, q)
}

func (s *txSide) Count(ctx context.Context, coll string, f Filter) (int, error) {
	return s.reading().Count(ctx, coll, f)
}

func (s *txSide) FindManyByID(ctx context.Context, coll, idField string, ids []string) ([]*doc.Object, error) {
	return s.reading().FindManyByID(ctx, coll, idField, ids)
}

func (s *txSide) LatestVersion(ctx context.Context, coll, id string) (int64, error) {
	return s.reading().LatestVersion(ctx, coll, id)
}

func (s *txSide) LatestPerID(ctx context.Context, coll string, q LatestQuery) ([]*doc.Object, int, error) {
	return s.reading().LatestPerID(ctx, coll, q)
}

func (s *txSide) CountDistinct(ctx context.Context, coll string, f Filter, idField string) (int, error) {
	return s.reading().CountDistinct(ctx, coll, f, idField)
}

func (s *txSide) Insert(ctx context.Context, coll string, d *doc.Object) error {
	tx, err := s.tx.open(s)
	if err != nil {
		return err
	}
	return tx.Insert(ctx, coll, d)
}

func (s *txSide) Update(ctx context.Context, coll string, f Filter, u Update, upsert bool) (int, error) {
	if skip, err := s.nothingToChange(ctx, coll, f, upsert); skip || err != nil {
		return 0, err
	}
	tx, err := s.tx.open(s)
	if err != nil {
		return 0, err
	}
	return tx.Update(ctx, coll, f, u, upsert)
}

func (s *txSide) UpdateAndGet(ctx context.Context, coll string, f Filter, u Update, upsert, before bool) (*doc.Object, error) {
	if skip, err := s.nothingToChange(ctx, coll, f, upsert); skip || err != nil {
		return nil, err
	}
	tx, err := s.tx.open(s)
	if err != nil {
		return nil, err
	}
	return tx.UpdateAndGet(ctx, coll, f, u, upsert, before)
}

func (s *txSide) Replace(ctx context.Context, coll string, f Filter, d *doc.Object, upsert bool) (int, error) {
	if skip, err := s.nothingToChange(ctx, coll, f, upsert); skip || err != nil {
		return 0, err
	}
	tx, err := s.tx.open(s)
	if err != nil {
		return 0, err
	}
	return tx.Replace(ctx, coll, f, d, upsert)
}

func (s *txSide) Delete(ctx context.Context, coll string, f Filter) (int, error) {
	if skip, err := s.nothingToChange(ctx, coll, f, false); skip || err != nil {
		return 0, err
	}
	tx, err := s.tx.open(s)
	if err != nil {
		return 0, err
	}
	return tx.Delete(ctx, coll, f)
}

// nothingToChange keeps a change that finds nothing here from opening the transaction on the wrong store.
func (s *txSide) nothingToChange(ctx context.Context, coll string, f Filter, upsert bool) (bool, error) {
	if upsert || s.tx.of == s {
		return false, nil
	}
	d, err := s.Store.FindOne(ctx, coll, f)
	return d == nil, err
}

// EnsureIndex declares the index outside the transaction, before the first write needs it.
func (s *txSide) EnsureIndex(ctx context.Context, coll string, ix Index) error {
	return s.reading().EnsureIndex(ctx, coll, ix)
}

func (s *txSide) Transact(ctx context.Context, fn func(Store) error) error {
	tx, err := s.tx.open(s)
	if err != nil {
		return err
	}
	return tx.Transact(ctx, fn)
}

// Close is a no-op: the view ends with its transaction.
func (s *txSide) Close() error { return nil }
