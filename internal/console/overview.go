package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
)

// problemsPage explains the kinds of problems. The browser opens it only if the user follows
// the link.
const problemsPage = "https://github.com/duefleet/duefleet/blob/main/docs/alerts.md"

// overviewView has everything that the overview shows.
type overviewView struct {
	Query    string
	Problems []problemRow
	Topics   []topicRow
	Live     int
	Members  []memberRow
}

// problemRow is one problem.
type problemRow struct {
	problem.Problem
	// Where is the topic, shard and scanners that have it; "" if it is the whole fleet.
	Where, Docs string
}

// topicRow is one topic.
type topicRow struct {
	admin.TopicStatus
	State    string
	Severity problem.Severity
	Waiting  int64
	Spark    spark
	// Hidden is true if the search leaves it out.
	Hidden bool
}

// memberRow is one scanner.
type memberRow struct {
	balance.Member
	Beat, Up time.Duration
}

func (c *Console) overview(_ context.Context, r *http.Request, now reading) (any, error) {
	v := overviewView{Query: r.FormValue("q"), Live: len(balance.Live(now.Fleet))}
	v.Problems = problemRows(now.Problems, v.Live)
	for _, t := range now.Topics {
		row := newTopicRow(t, now.Problems)
		points, _ := c.samples.of(t.Topic, now.At)
		row.Spark = newSpark(points, now.At)
		row.Hidden = !strings.Contains(strings.ToLower(t.Topic), strings.ToLower(v.Query))
		v.Topics = append(v.Topics, row)
	}
	for _, m := range now.Fleet {
		v.Members = append(v.Members, newMemberRow(m, now.At))
	}
	return v, nil
}

// problemRows returns problems with where they are and where to read more. live is the
// number of live scanners.
func problemRows(problems []problem.Problem, live int) (rows []problemRow) {
	for _, p := range problems {
		rows = append(rows, problemRow{p, where(p, live), problemsPage + "#" + p.Kind.Anchor()})
	}
	return rows
}

func newMemberRow(m balance.Member, now time.Time) memberRow {
	row := memberRow{Member: m, Beat: now.Sub(m.Heartbeat)}
	if !m.Started.IsZero() {
		row.Up = now.Sub(m.Started)
	}
	return row
}

// where names what has a problem. live is the number of live scanners.
func where(p problem.Problem, live int) string {
	var parts []string
	if p.Topic != "" {
		parts = append(parts, "topic "+p.Topic)
	}
	if p.Shard != "" {
		parts = append(parts, "shard "+p.Shard)
	}
	if n := len(p.Nodes); n > 0 && n < live {
		word := "scanner "
		if n > 1 {
			word = "scanners "
		}
		parts = append(parts, word+strings.Join(p.Nodes, ", "))
	}
	return strings.Join(parts, ", ")
}

func newTopicRow(t admin.TopicStatus, problems []problem.Problem) topicRow {
	row := topicRow{TopicStatus: t, Severity: problem.Healthy, Waiting: t.Pending - t.Backlog - t.Leased - t.Parked}
	for _, p := range problems { // the worst is the first
		if p.Topic == t.Topic {
			row.Severity = p.Severity
			break
		}
	}
	switch {
	case t.Phase == shard.Removed:
		row.State = "removal interrupted"
	case t.Paused:
		row.State = "paused"
	case t.Phase == shard.Migrating:
		row.State = fmt.Sprintf("shards %d to %d", t.Previous, t.Shards)
	case row.Severity == problem.Broken || row.Severity == problem.Degraded:
		row.State = string(row.Severity)
	case t.Limited:
		row.State = "rate limited"
	default:
		row.State = "healthy"
	}
	return row
}
