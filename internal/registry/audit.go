package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
)

// MostAudited is how many entries the record of operators' changes holds; the oldest ones
// go first.
const MostAudited = 1000

// Audited is an entry in the record of operators' changes.
type Audited struct {
	ID string
	// Began and Ended are by Redis's clock. Ended is zero until the change is over, and
	// stays so after a crash.
	Began, Ended time.Time
	Note         string
}

// BeginAudit adds an entry with a new ID of 12 bytes.
func (r *Registry) BeginAudit(ctx context.Context, id, note string) error {
	_, err := r.audit(ctx, id, false, note)
	return wrapIf(err, "write the audit entry")
}

// EndAudit completes an entry, and replaces its note. An entry that newer ones displaced
// stays away.
func (r *Registry) EndAudit(ctx context.Context, id, note string) error {
	_, err := r.audit(ctx, id, true, note)
	return wrapIf(err, "complete the audit entry")
}

// audit writes to a hash: an entry is completed in place by its ID. A stream would hold each
// change twice, and a list would be searched.
func (r *Registry) audit(ctx context.Context, id string, ends bool, note string) (int64, error) {
	call := luascript.Call{Script: "audit", Keys: []string{r.key("audit")}, Args: []any{id, ends, note}}
	return r.scripts.Run(ctx, call).Int()
}

// Audit returns the record of operators' changes, the newest first.
func (r *Registry) Audit(ctx context.Context) ([]Audited, error) {
	all, err := r.client(ctx).HGetAll(ctx, r.key("audit")).Result()
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	entries := make([]Audited, 0, len(all))
	for id, text := range all {
		began, rest, _ := strings.Cut(text, " ")
		ended, note, _ := strings.Cut(rest, " ")
		entries = append(entries, Audited{ID: id, Began: millis(began), Ended: millis(ended), Note: note})
	}
	slices.SortFunc(entries, func(a, b Audited) int {
		if by := b.Began.Compare(a.Began); by != 0 {
			return by
		}
		return strings.Compare(a.ID, b.ID)
	})
	return entries, nil
}

// millis reads a time in ms; zero for 0 and for what is no number.
func millis(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
