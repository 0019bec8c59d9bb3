package task

import (
	"context"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// The states of a review.
const (
	Awaiting = "awaiting"
	Continue = "continue"
	Abort    = "abort"
)

// reviewLife is how long a review is kept.
const reviewLife = 7 * 24 * time.Hour

// Review is a step that waits, or waited, for a person's decision. Times are RFC 3339 in UTC.
type Review struct {
	Instance, StepID string
	State            string      // awaiting, continue or abort
	Label            string      // what the step's author says to whoever decides; "" = nothing
	Upstream         *doc.Object // what there is to decide on
	AwaitingAt       string
	ExpiresAt        string // when the record goes
	DecidedBy        string // "" until it is decided
	DecidedAt        string
}

// Reviews stores the reviews that runs wait for (collection task_reviews). It is safe for concurrent use, also by several processes.
type Reviews struct {
	docs    document.Store
	indexes *indexes
	now     func() time.Time

	mu    sync.Mutex
	waits []*reviewWait
}

// NewReviews returns the reviews of a document store; now is the clock (nil: time.Now).
func NewReviews(docs document.Store, now func() time.Time) *Reviews {
	if now == nil {
		now = time.Now
	}
	return &Reviews{docs: docs, indexes: &indexes{docs: docs}, now: now}
}

func reviewFilter(instance, step string) document.Filter {
	return document.By("instance_id", instance, "step_id", step)
}

// Register records that a step of a run waits for a decision and returns the review as it stands: one that was decided to continue
// stays decided, and so does one that waits already. One that was aborted in an earlier attempt of the run is asked for anew.
func (s *Reviews) Register(ctx context.Context, r Review, epoch int64) (Review, error) {
	ctx, docs, err := s.indexes.ensure(ctx, r.Instance, collReviews)
	if err != nil {
		return Review{}, err
	}
	now := s.now()
	fresh := doc.Of("instance_id", r.Instance, "step_id", r.StepID, "state", Awaiting, "label", nil, "upstream", r.Upstream,
		"awaiting_at", preciseTime(now), "expires_at", preciseTime(now.Add(reviewLife)), "attempt_epoch", doc.Int(epoch))
	if r.Label != "" {
		fresh.Set("label", r.Label)
	}
	var stands *doc.Object
	err = docs.Transact(ctx, func(tx document.Store) error {
		stands, err = tx.FindOne(ctx, collReviews, reviewFilter(r.Instance, r.StepID))
		if err != nil {
			return err
		}
		if stands != nil {
			if was, _ := stands.Int("attempt_epoch"); stands.Str("state") != Abort || was >= epoch {
				return nil
			}
		}
		stands = fresh
		_, err = tx.Replace(ctx, collReviews, reviewFilter(r.Instance, r.StepID), fresh, true)
		return err
	})
	return reviewFrom(stands), err
}

// Get returns the review of a step of a run; a NotFound error when there is none.
func (s *Reviews) Get(ctx context.Context, instance, step string) (Review, error) {
	d, err := s.docs.FindOne(ctx, collReviews, reviewFilter(instance, step))
	if err == nil && d == nil {
		err = fault.New(fault.NotFound, "no review of step %q of %s is on record", step, instance)
	}
	if err != nil {
		return Review{}, err
	}
	return reviewFrom(d), nil
}

// Decide records a decision, continue or abort, and who made it. It applies only to a review that waits: false means that there is none.
func (s *Reviews) Decide(ctx context.Context, instance, step, decision, by string) (bool, error) {
	if decision != Continue && decision != Abort {
		return false, fault.New(fault.Invalid, "a review is decided by %s or %s, not %q", Continue, Abort, decision)
	}
	n, err := s.docs.Update(ctx, collReviews, reviewFilter(instance, step).And("state", document.Eq, Awaiting),
		document.Update{Set: doc.Of("state", decision, "decided_by", by, "decided_at", preciseTime(s.now()))}, false)
	return n == 1, err
}

// Awaiting returns the reviews that wait, of one run or of all ("").
func (s *Reviews) Awaiting(ctx context.Context, instance string) ([]Review, error) {
	f := document.By("state", Awaiting)
	if instance != "" {
		f = f.And("instance_id", document.Eq, instance)
	}
	docs, err := s.docs.Query(ctx, collReviews, document.Query{Filter: f, Sort: []document.Sort{{Path: "awaiting_at"}}})
	if err != nil {
		return nil, err
	}
	all := make([]Review, len(docs))
	for i, d := range docs {
		all[i] = reviewFrom(d)
	}
	return all, nil
}

func reviewFrom(d *doc.Object) Review {
	return Review{Instance: d.Str("instance_id"), StepID: d.Str("step_id"), State: d.Str("state"), Label: d.Str("label"), Upstream: d.Obj("upstream"),
		AwaitingAt: d.Str("awaiting_at"), ExpiresAt: d.Str("expires_at"), DecidedBy: d.Str("decided_by"), DecidedAt: d.Str("decided_at")}
}
