package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// maxShardRows bounds the rows of a table of shards.
const maxShardRows = 100

// topicContent is the part of a reading of one topic that its status lacks.
type topicContent struct {
	// Due has the bars of the chart, counted in Counted shards. Totals has a span for each
	// window.
	Due, Totals []admin.DueSpan
	Counted     int
	// Document is the last good one that scanners keep in Redis; nil: none. Raw is its text.
	Document *config.Topic
	Raw      []byte
	// Hold is the topic's pause in Redis; nil: none.
	Hold *registry.Hold
}

// topicReader returns what reads the topic of a request for everybody who looks at it.
func (c *Console) topicReader(r *http.Request) *reader {
	name, w := r.PathValue("topic"), windowOf(r.FormValue("window"))
	status := &admin.Reader{Store: c.store, OrphansEvery: orphansEvery, OrphansIn: orphansIn}
	read := func(ctx context.Context) (got content, err error) {
		if task.CheckTopic(name) != nil {
			return got, fmt.Errorf("topic %q: %w", name, task.ErrUnknownTopic)
		}
		if got.Status, err = status.Read(ctx, name); err == nil {
			got.About, err = readTopic(ctx, c.store.Topic(name), got.Topics[0].Polled, w)
		}
		return got, err
	}
	return c.readers.find(w.name+" "+name, readTopicEvery, measured(c.metrics, "topic", read))
}

// readTopic reads what a status lacks. shards is the number of shards that are polled.
func readTopic(ctx context.Context, t *shard.Topic, shards int, w window) (got topicContent, err error) {
	ms, err := t.Now(ctx)
	if err != nil {
		return got, err
	}
	now := time.UnixMilli(ms).UTC()
	spans := w.spans(now)
	bars := len(spans)
	for _, other := range windows() {
		spans = append(spans, admin.DueSpan{From: now, To: now.Add(other.length)})
	}
	if got.Counted, err = admin.CountDue(ctx, t, shards, spans); err != nil {
		return got, err
	}
	got.Due, got.Totals = spans[:bars], spans[bars:]
	doc, err := t.Store().Registry().Document(ctx, t.Name())
	if err != nil && !shard.Definite(err) {
		return got, err
	}
	if topic, err := config.ParseTopic(t.Name(), doc); err == nil { // there may be none, or one of a newer version
		got.Document, got.Raw = &topic, doc
	}
	holds, err := t.Store().Registry().Holds(ctx)
	if err != nil && !shard.Definite(err) {
		return got, err
	}
	if h, held := holds[t.Name()]; held && !h.Ended(now) {
		got.Hold = &h
	}
	return got, nil
}

// topicView has everything that a topic's page shows.
type topicView struct {
	topicRow
	Problems []problemRow
	Due      dueView
	Pace     paceView
	Shards   []shardRow
	// Hidden is how many shards are left out.
	Hidden int
	// Route says where tasks go; "" if that isn't known.
	Route string
	// Queues has what RabbitMQ says about the topic's queues; nil if none is known.
	Queues   *queuesView
	Settings []settingRow
	Hold     *registry.Hold
	// Progress is how far a change of the shard count is; nil: none runs.
	Progress *progressView
	// Edits are the ways to change the document. Fixed says why there are none; "" if there
	// are.
	Edits []edit
	Fixed string
	// Done says which action was just taken; "" for none. Bad is true if it has no effect.
	Done string
	Bad  bool
	// Window is the window that the page shows.
	Window string
}

// shardRow is one shard.
type shardRow struct {
	shard.Stats
	// Lag is how long the oldest task has been due; 0 if none is due.
	Lag time.Duration
	// Skew compares Pending with the mean of all shards.
	Skew string
}

// progressView is how far a change of the shard count is.
type progressView struct {
	admin.Change
	From, To, Shards int
	// In Of are the moved tasks and the others. Left is the time that these take, 0 if nobody
	// knows it.
	Of   int64
	Left time.Duration
}

func newProgressView(s admin.TopicStatus, now time.Time) *progressView {
	if s.Change == nil {
		return nil
	}
	v := &progressView{Change: *s.Change, From: s.Previous, To: s.Shards, Shards: s.Polled}
	v.Of = v.Moved + v.Misplaced
	if !v.End.IsZero() {
		v.Left = v.End.Sub(now)
	}
	return v
}

// settingRow is one setting. Default is set if the value differs from it. Source is where
// the value comes from: document or default.
type settingRow struct{ Key, Value, Default, Source string }

func (c *Console) topic(_ context.Context, r *http.Request, now reading) (any, error) {
	if errors.Is(now.err, task.ErrUnknownTopic) {
		return nil, now.err
	}
	if len(now.Topics) == 0 {
		return nil, nil //nolint:nilnil // the page then says why nothing was read
	}
	s := now.Topics[0]
	w := windowOf(r.FormValue("window"))
	v := topicView{topicRow: newTopicRow(s, now.Problems), Hold: now.About.Hold, Window: w.name,
		Problems: problemRows(now.Problems, len(balance.Live(now.Fleet))), Due: newDueView(w, now.About, s),
		Settings: settingRows(s.Topic, now.About), Progress: newProgressView(s, now.At), Fixed: c.whyFixed(s.Source)}
	points, since := c.samples.of(s.Topic, now.At)
	v.Pace = newPaceView(points, since, now.At)
	if v.Fixed == "" {
		v.Edits = edits()
	}
	if doc := now.About.Document; doc != nil {
		v.Route = fmt.Sprintf("To exchange %q with routing key %q", doc.Exchange, doc.RoutingKey)
		if doc.Declare != nil && doc.Declare.Queue != "" {
			v.Route += fmt.Sprintf(", queue %q", doc.Declare.Queue)
		}
		v.Queues = c.depths.view(*doc)
		v.Route += ". " + routeWords(now.Problems, len(balance.Live(now.Fleet)))
	}
	v.Shards, v.Hidden = shardRows(s.PerShard)
	switch r.FormValue("done") {
	case "pause":
		v.Done = "Paused in Redis. Scanners apply it within seconds."
	case "resume":
		v.Done = "The pause in Redis is over. Scanners apply that within seconds."
	case "written", "unkept":
		index, _ := strconv.ParseUint(r.FormValue("index"), 10, 64) // of 0, any scanner has applied it
		verdict := admin.ReadVerdict(now.Fleet, s.Topic, index)
		v.Done, v.Bad = "The document is written: "+verdict.Text()+".", verdict.Bad(s.Paused)
		if r.FormValue("done") == "unkept" {
			v.Done += " It is not in the topic's history: the token in consul may not write there."
		}
	}
	return v, nil
}

// routeWords says what scanners know from RabbitMQ about a topic's route. live is the number of
// live scanners.
func routeWords(problems []problem.Problem, live int) string {
	for _, p := range problems {
		switch p.Kind {
		case problem.RabbitMQUnreachable, problem.RabbitMQBlocked, problem.ExchangeMissing, problem.RouteRefused:
			return "Scanners report: " + p.Text + "."
		default:
		}
	}
	if live == 0 {
		return "No scanner runs, so nobody asks RabbitMQ about it."
	}
	return "Scanners report no problem with it."
}

// shardRows returns the shards in their order; of many, those with the longest lag and then
// the most tasks.
func shardRows(stats []shard.Stats) (rows []shardRow, hidden int) {
	var pending int64
	for _, s := range stats {
		pending += s.Pending
	}
	for _, s := range stats {
		row := shardRow{Stats: s, Skew: "–"}
		if !s.Oldest.IsZero() && s.Backlog > 0 {
			row.Lag = max(0, s.Now.Sub(s.Oldest))
		}
		if mean := float64(pending) / float64(len(stats)); mean > 0 {
			row.Skew = skew(float64(s.Pending) / mean)
		}
		rows = append(rows, row)
	}
	if len(rows) <= maxShardRows {
		return rows, 0
	}
	slices.SortStableFunc(rows, func(a, b shardRow) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(b.Pending, a.Pending))
	})
	return rows[:maxShardRows], len(rows) - maxShardRows
}

// settingRows returns all settings of a document, those that differ from the defaults first.
func settingRows(name string, about topicContent) (rows []settingRow) {
	if about.Document == nil {
		return nil
	}
	given := config.Given(name, about.Raw)
	defaults := config.Effective(config.DefaultTopic(name))
	for key, value := range config.Effective(*about.Document) {
		row := settingRow{Key: key, Value: value, Source: "default"}
		if _, there := given[key]; there {
			row.Source = "document"
		}
		if usual := defaults[key]; usual != value {
			row.Default = cmp.Or(usual, "none")
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b settingRow) int {
		return cmp.Or(min(1, len(b.Default))-min(1, len(a.Default)), cmp.Compare(a.Key, b.Key))
	})
	return rows
}
