package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// documents are what the topics' documents ask for, by name.
type documents struct {
	// known is false where they couldn't be read at all.
	known bool
	good  map[string]config.Topic
	// broken are those with mistakes, as Consul has them.
	broken map[string]config.Document
}

// has reports whether a topic has a document, good or broken.
func (d documents) has(topic string) bool {
	_, good := d.good[topic]
	_, broken := d.broken[topic]
	return good || broken
}

// examineTopics reads the topics' documents. Those with mistakes are left to examineBroken.
func (p Patient) examineTopics(ctx context.Context, r *report) documents {
	if p.Consul != nil {
		return p.examineConsul(ctx, r)
	}
	if len(p.Settings.Topics) == 0 && !p.Broken {
		r.warn("topics", "add a topic to "+p.Path+", as in config.example.yaml", "the configuration has no topics, and no consul.addr to take them from")
	}
	return documents{known: !p.Broken, good: p.Settings.Topics}
}

func (p Patient) examineConsul(ctx context.Context, r *report) documents {
	settings := p.Settings.Consul
	list, reached := p.reachConsul(ctx, r)
	if !reached {
		return documents{}
	}
	ask, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	host, _ := os.Hostname()
	instance := "doctor-" + host
	err := p.Consul.WriteStatus(ask, instance, []byte("{}"))
	if err == nil {
		err = p.Consul.DeleteStatus(ask, instance)
	}
	if err != nil {
		r.fail("consul.rights", mendConsul(settings, err), "%v", err)
	} else {
		r.ok("consul.rights", "the token may read the topics and write under %s/status/", settings.Prefix)
	}
	docs := documents{known: true, good: map[string]config.Topic{}, broken: map[string]config.Document{}}
	for _, d := range list {
		if doc := config.ParseDocument(d.Topic, d.Raw, d.Index); doc.Err != nil {
			docs.broken[d.Topic] = doc
		} else {
			docs.good[d.Topic] = doc.Topic
		}
	}
	if len(list) == 0 {
		r.warn("topics", p.command("topic set orders declare.queue=orders.due"), "consul holds no topics under %s/topics/", settings.Prefix)
	}
	return docs
}

// reachConsul lists the documents, and reports whether that could be done.
func (p Patient) reachConsul(ctx context.Context, r *report) (list []consul.Document, reached bool) {
	settings := p.Settings.Consul
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	list, err := p.Consul.List(ctx)
	if err != nil {
		r.fail("consul.connection", mendConsul(settings, err), "%v", err)
		return nil, false
	}
	r.ok("consul.connection", "%s answers, with %d topics under %s/topics/", settings.Addr, len(list), settings.Prefix)
	return list, true
}

func mendConsul(c config.Consul, err error) string {
	switch {
	case consul.Forbidden(err):
		return fmt.Sprintf(`set consul.token to one whose policy has: key_prefix "%s/topics/" {policy="read"} key_prefix "%s/status/" {policy="write"} service "%s" {policy="write"}`,
			c.Prefix, c.Prefix, consul.ServiceName)
	case tlsTrouble(err):
		return "set consul.tls, or consul.addr to the port that speaks it"
	default:
		return "start the agent, or set consul.addr; this has to name a leader: curl http://" + c.Addr + "/v1/status/leader"
	}
}

// fleetView is what Redis knows of the fleet.
type fleetView struct {
	// live members.
	live []balance.Member
	// reasons are why tasks of a topic were parked: the first one's.
	reasons map[string]string
}

// examineFleet compares what is asked for with what the fleet works by.
func (p Patient) examineFleet(ctx context.Context, r *report, docs documents) fleetView {
	ctx, cancel := context.WithTimeout(ctx, 2*askLimit)
	defer cancel()
	view := fleetView{reasons: map[string]string{}}
	members, err := balance.Members(ctx, p.Store)
	if err != nil {
		r.fail("fleet", p.command("status"), "%v", err)
		return view
	}
	for _, m := range members {
		if m.Alive {
			view.live = append(view.live, m)
		}
	}
	p.examineMembers(ctx, r, view.live, docs)
	if !docs.known {
		return view
	}
	for _, name := range slices.Sorted(maps.Keys(docs.good)) {
		p.examineApplied(ctx, r, name, docs.good[name], len(view.live) > 0)
		if reason := p.examineParked(ctx, r, name, docs.good[name]); reason != "" {
			view.reasons[name] = reason
		}
	}
	p.examineOrphans(ctx, r, docs)
	return view
}

func (p Patient) examineMembers(ctx context.Context, r *report, live []balance.Member, docs documents) {
	switch len(live) {
	case 0:
		r.warn("fleet", p.command("run"), "no scanner runs under prefix %s: nothing is delivered", p.Settings.Redis.Prefix)
		return
	case 1:
		r.warn("fleet", p.command("run")+" on another machine", "only scanner %s runs: nobody would take over from it", live[0].Instance)
	default:
		r.ok("fleet", "%d scanners run", len(live))
	}
	for _, m := range live {
		for _, topic := range slices.Sorted(maps.Keys(m.Errors)) {
			if _, broken := docs.broken[topic]; broken {
				continue // examineBroken tells of it
			}
			check, mend := "topic "+topic+" document", p.command("topic set "+topic+" key=value")
			if topic == "" {
				check, mend = "fleet configuration", p.command("check")
			}
			r.fail(check, mend, "scanner %s refuses it, and keeps to the last good one: %s", m.Instance, m.Errors[topic])
		}
		for _, topic := range slices.Sorted(maps.Keys(m.Troubles)) {
			r.fail("topic "+topic+" served", p.command("status --topic "+topic), "scanner %s doesn't serve it: %s", m.Instance, m.Troubles[topic])
		}
	}
	p.examineDocuments(ctx, r, live)
}

// examineApplied compares a topic's document with the one the fleet keeps in
// Redis, and its shard count with the placement.
func (p Patient) examineApplied(ctx context.Context, r *report, name string, doc config.Topic, running bool) {
	check := "topic " + name + " applied"
	topic := p.Store.Topic(name)
	raw, err := topic.Document(ctx)
	placement, missing := topic.Placement(ctx)
	switch {
	case err != nil:
		r.fail(check, p.command("status"), "%v", err)
	case raw == nil || errors.Is(missing, task.ErrUnknownTopic):
		if running {
			r.fail(check, p.command("status --topic "+name), "no scanner serves the topic yet")
		}
	default:
		kept, err := config.ParseTopic(name, raw)
		var changes []string
		for _, c := range config.Diff(kept, doc) {
			changes = append(changes, fmt.Sprintf("%s is %s and should be %s", c.Key, cmp.Or(c.Old, "(none)"), cmp.Or(c.New, "(none)")))
		}
		switch {
		case err != nil:
			r.warn(check, p.command("topic set "+name+" key=value"), "the document kept in Redis: %v", err)
		case len(changes) > 0:
			r.warn(check, p.mendApplied(running), "the fleet doesn't work by the document yet: %s", strings.Join(changes, "; "))
		case placement.Phase == shard.Migrating:
			r.info(check, "the document is applied; the shard count is changing to %d, which `scanner status` shows", placement.Shards)
		case placement.Shards != doc.Shards:
			r.warn(check, p.mendApplied(running), "M is %d and should be %d", placement.Shards, doc.Shards)
		default:
			r.ok(check, "the fleet works by the document; M is %d", placement.Shards)
		}
	}
}

// mendApplied is the command for a document that isn't applied.
func (p Patient) mendApplied(running bool) string {
	if running {
		return p.command("status") + "; without consul send SIGHUP to scanners whose file this is"
	}
	return p.command("run")
}

// examineParked returns why the first of the topic's parked tasks was parked.
func (p Patient) examineParked(ctx context.Context, r *report, name string, doc config.Topic) (reason string) {
	topic := p.Store.Topic(name)
	for at := range doc.Shards {
		page, err := topic.Shard(at).Parked(ctx, 0, 1)
		if err != nil {
			return ""
		}
		if len(page) > 0 {
			reason = page[0].Reason
			r.warn("topic "+name+" parked", p.command("parked ls --topic "+name)+"; mend the cause, then "+p.command("parked replay --topic "+name+" --all"),
				"tasks were set aside; one of them because: %s", reason)
			return reason
		}
	}
	return ""
}

// examineOrphans finds topics that Redis holds and nobody asks for any more.
func (p Patient) examineOrphans(ctx context.Context, r *report, docs documents) {
	names, err := p.Store.Topics(ctx)
	if err != nil {
		r.fail("topics", p.command("status"), "%v", err)
		return
	}
	for _, name := range names {
		if !docs.has(name) {
			r.warn("topic "+name+" document", p.mendOrphan(name), "an orphan: Redis holds the topic, and it has no document")
		}
	}
}

// mendOrphan brings the document back; what removes the topic comes last.
func (p Patient) mendOrphan(name string) string {
	back := "put it back under topics in " + p.Path
	if p.Consul != nil {
		back = p.command("topic undo " + name)
	}
	return back + "; or, if nobody wants the topic any more, " + p.command("topic rm "+name)
}
