package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// documents holds the topics' documents, by name.
type documents struct {
	// known is false if the source of the documents couldn't be read.
	known bool
	// refused is true if a finding says why it couldn't be read.
	refused bool
	// readOnly is true if the token of Consul may not write documents and their histories.
	readOnly bool
	good     map[string]config.Topic
	// broken are the documents in Consul with mistakes.
	broken map[string]config.Document
}

// has reports whether a topic has a document, good or broken.
func (d documents) has(topic string) bool {
	_, good := d.good[topic]
	_, broken := d.broken[topic]
	return good || broken
}

// examineTopics reads the topics' documents from Consul or the file. examineBroken
// reports those with mistakes.
func (p Target) examineTopics(ctx context.Context, r *report) documents {
	if p.Consul != nil {
		return p.examineConsul(ctx, r)
	}
	if len(p.Settings.Topics) == 0 && p.Mistakes == nil {
		r.warn("topics", "add a topic to "+p.Path+", as in config.example.yaml",
			"the configuration has no topics, and no consul.addr to take them from")
	}
	return documents{known: p.Mistakes == nil, refused: p.Mistakes != nil, good: p.Settings.Topics}
}

func (p Target) examineConsul(ctx context.Context, r *report) documents {
	settings := p.Settings.Consul
	list, reached := p.reachConsul(ctx, r)
	if !reached {
		return documents{refused: r.failed("consul.connection")}
	}
	r.ask("consul.rights")
	docs := documents{known: true, good: map[string]config.Topic{}, broken: map[string]config.Document{}}
	docs.readOnly = !p.examineConsulRights(ctx, r)
	for _, d := range list {
		if doc := config.ParseDocument(d.Topic, d.Raw, d.Index); doc.Err != nil {
			docs.broken[d.Topic] = doc
		} else {
			docs.good[d.Topic] = doc.Topic
		}
	}
	if len(list) == 0 {
		r.warn("topics", p.command("topic create orders declare.queue=orders.due"), "consul holds no topics under %s/topics/",
			settings.Prefix)
	}
	return docs
}

// reachConsul lists the documents and reports whether Consul answered.
func (p Target) reachConsul(ctx context.Context, r *report) (list []consul.Document, reached bool) {
	settings := p.Settings.Consul
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	list, err := p.Consul.List(ctx)
	if err != nil {
		r.failErr(ctx, err, "consul.connection", fixConsul(settings, err), "%v", err)
		return nil, false
	}
	r.ok("consul.connection", "%s answers, with %d topics under %s/topics/", settings.Addr, len(list), settings.Prefix)
	return list, true
}

func fixConsul(c config.Consul, err error) string {
	switch {
	case consul.Forbidden(err):
		return scannerPolicy(c.Prefix)
	case serverWithoutTLS(err):
		return "the agent speaks no TLS at that port: write http:// in consul.addr, or the port that speaks it"
	case tlsFailed(err):
		return "set consul.tls, or consul.addr to the port that speaks it"
	default:
		return "start the agent, or set consul.addr; this has to name a leader: curl http://" + c.Addr + "/v1/status/leader"
	}
}

// examineApplied checks that the fleet has applied a topic's document. It compares the
// document with the one that the fleet keeps in Redis, and its shard count with the one
// in force.
func (p Target) examineApplied(ctx context.Context, r *report, name string, doc config.Topic, running bool) {
	check := "topic " + name + " applied"
	topic := p.Store.Topic(name)
	raw, err := p.Store.Registry().Document(ctx, name)
	placement, missing := topic.Placement(ctx)
	switch {
	case err != nil:
		r.failErr(ctx, err, check, p.command("status"), "%v", err)
	case raw == nil || errors.Is(missing, task.ErrUnknownTopic):
		if running {
			r.fail(check, p.command("status --topic "+name), "no scanner serves the topic yet")
		}
	default:
		kept, err := config.ParseTopic(name, raw)
		changes := differences(kept, doc, "should be")
		switch {
		case err != nil:
			r.warn(check, p.command("topic set "+name+" key=value"), "the document kept in Redis: %v", err)
		case len(changes) > 0:
			r.warn(check, p.fixApplied(running), "the fleet hasn't applied the document yet: %s", strings.Join(changes, "; "))
		case placement.Phase == shard.Migrating:
			r.info(check, "the document is applied; the shard count is changing to %d, which `scanner status` shows",
				placement.Shards)
		case placement.Shards != doc.Shards:
			r.warn(check, p.fixApplied(running), "M is %d and should be %d", placement.Shards, doc.Shards)
		case !running:
			r.info(check, "Redis keeps the document, and M is %d; no scanner runs to apply it", placement.Shards)
		default:
			r.ok(check, "the fleet has applied the document; M is %d", placement.Shards)
		}
	}
}

// fixApplied returns the command for a document that isn't applied.
func (p Target) fixApplied(running bool) string {
	if running {
		return p.command("status") + "; without consul send SIGHUP to scanners whose file this is"
	}
	return p.command("run")
}

// examineOrphans reports topics in Redis that have no document any more. That is a
// failure if a scanner says so too. Otherwise it is a warning, because another source may
// have the topic's document.
func (p Target) examineOrphans(ctx context.Context, r *report, docs documents, fleet fleetView) {
	names, err := p.Store.Registry().Topics(ctx)
	if err != nil {
		r.failErr(ctx, err, "topics", p.command("status"), "%v", err)
		return
	}
	for _, name := range names {
		if docs.has(name) {
			continue
		}
		state := Warn
		if fleet.has(problem.TopicOrphan, name) {
			state = Fail
		}
		check := "topic " + name + " document"
		if s, others := fleet.withoutDocument(name); others {
			r.add(check, state, s.fix(true), "%s; this configuration has none either", s.what())
			continue
		}
		r.add(check, state, p.fixOrphan(name), "an orphan: Redis holds the topic, and it has no document")
	}
}

// fixOrphan returns the command that restores the document, then the one that removes
// the topic.
func (p Target) fixOrphan(name string) string {
	back := "put it back under topics in " + p.Path
	if p.Consul != nil {
		back = p.command("topic undo " + name)
	}
	return back + "; or, if nobody wants the topic any more, " + p.command("topic rm "+name)
}
