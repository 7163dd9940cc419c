package console

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

// historyView has everything that the page of a document's history shows.
type historyView struct {
	Topic string
	// Mistake says why Consul can't be read; "" if it can.
	Mistake string
	// Changes has the newest first.
	Changes []historyRow
}

// historyRow is one change of the document.
type historyRow struct {
	topicconfig.HistoryLine
	// Restores is true if undo can write the document that this change left.
	Restores bool
}

func (c *Console) history(ctx context.Context, r *http.Request, _ reading) (any, error) {
	v := historyView{Topic: r.PathValue("topic")}
	if err := c.editable(r, v.Topic); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, consulLimit)
	defer cancel()
	h, _, err := c.documents.History(ctx, v.Topic)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		v.Mistake = err.Error()
		return v, nil
	}
	for i, line := range slices.Backward(topicconfig.NewHistoryLines(h)) {
		v.Changes = append(v.Changes, historyRow{line, i+1 < len(h.Changes) && line.Document != "" && line.Error == ""})
	}
	return v, nil
}
