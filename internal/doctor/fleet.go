package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
)

// fleetLimit bounds the time for reading the fleet's status, which takes several commands
// for each topic.
const fleetLimit = time.Minute

// fleetView is the fleet as Redis knows it.
type fleetView struct {
	status admin.Status
	// late holds, by topic, a sentence that says how long its tasks have been due.
	late map[string]string
	// unrouted holds the topics with messages that RabbitMQ returned because no queue is
	// bound.
	unrouted map[string]bool
}

// live returns the live members.
func (f fleetView) live() []balance.Member { return balance.Live(f.status.Fleet) }

// examineFleet compares the documents with what the fleet applies. It also reports
// everything that `scanner status --exit-code` counts as unhealthy. It leaves late tasks
// to examineWaiting, because later findings may explain them.
func (p Target) examineFleet(ctx context.Context, r *report, docs documents, brokers brokers) fleetView {
	ctx, cancel := context.WithTimeout(ctx, fleetLimit)
	defer cancel()
	view := fleetView{late: map[string]string{}, unrouted: map[string]bool{}}
	var err error
	if view.status, err = admin.ReadStatus(ctx, p.Store, ""); err != nil {
		if !shard.Denied(err) || !r.failed("redis.rights") { // otherwise redis.rights already names the missing permission
			r.fail("fleet", p.command("status"), "%v", err)
		}
		return view
	}
	live := view.live()
	p.examineMembers(ctx, r, live, docs)
	p.examineServed(r, live, docs, brokers)
	if docs.known {
		for _, name := range slices.Sorted(maps.Keys(docs.good)) {
			p.examineApplied(ctx, r, name, docs.good[name], len(live) > 0)
		}
		p.examineOrphans(ctx, r, docs, view)
	}
	for _, t := range view.status.Topics {
		p.examineTasks(ctx, r, t, view)
	}
	p.examineReasons(r, docs, view)
	return view
}

func (p Target) examineMembers(ctx context.Context, r *report, live []balance.Member, docs documents) {
	switch len(live) {
	case 0:
		r.fail("fleet", p.command("run"), "no scanner runs under prefix %s: nothing is delivered", p.Settings.Redis.Prefix)
		return
	case 1:
		r.warn("fleet", p.command("run")+" on another machine", "only scanner %s runs: nobody would take over from it",
			live[0].Instance)
	default:
		r.ok("fleet", "%d scanners run", len(live))
	}
	for _, m := range live {
		for _, topic := range slices.Sorted(maps.Keys(m.Errors)) {
			if _, broken := docs.broken[topic]; broken || topic == "" && m.Away {
				continue // examineBroken and examineReasons report it
			}
			check, fix := "topic "+topic+" document", p.command("topic set "+topic+" key=value")
			if topic == "" {
				check, fix = "fleet configuration", p.command("check")
			}
			r.fail(check, fix, "scanner %s refuses it, and uses the last good one: %s", m.Instance, m.Errors[topic])
		}
	}
	p.examineDocuments(ctx, r, live)
}

// examineServed reports the topics that scanners can't serve: one finding for each
// reason, with its topics and scanners. It leaves out reasons that a finding about the
// brokers or a missing document explains.
func (p Target) examineServed(r *report, live []balance.Member, docs documents, brokers brokers) {
	type group struct{ topics, members []string }
	groups := map[string]*group{}
	for _, m := range live {
		for topic, why := range m.Troubles {
			if brokers.explains(why) || orphan(why) && docs.known && !docs.has(topic) {
				continue
			}
			if groups[why] == nil {
				groups[why] = &group{}
			}
			groups[why].topics = append(groups[why].topics, topic)
			groups[why].members = append(groups[why].members, m.Instance)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(groups)) {
		topics, members := distinct(groups[why].topics), distinct(groups[why].members)
		check, fix := "topics served", p.command("status")
		if len(topics) == 1 {
			check, fix = "topic "+topics[0]+" served", p.command("status --topic "+topics[0])
		}
		r.fail(check, fix, "%s: %s", unserved(members, topics), why)
	}
}

// unserved returns a sentence that says which scanners don't serve which topics.
func unserved(members, topics []string) string {
	if len(members) == 1 {
		return fmt.Sprintf("scanner %s doesn't serve %s", members[0], itOrNames(topics))
	}
	return fmt.Sprintf("scanners %s don't serve %s", strings.Join(members, ", "), itOrNames(topics))
}

// itOrNames returns "it" for a single topic, which the check's name has already, or the
// names of several.
func itOrNames(topics []string) string {
	if len(topics) == 1 {
		return "it"
	}
	return named(topics)
}

func distinct(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// examineTasks reports a topic's tasks that aren't delivered now: paused or parked.
func (p Target) examineTasks(ctx context.Context, r *report, t admin.TopicStatus, view fleetView) {
	if t.Paused {
		p.examinePause(r, t)
	}
	reason := ""
	if t.Parked > 0 {
		reason = p.parkedReason(ctx, t)
		list, replay := p.command("parked ls --topic "+t.Topic), p.command("parked replay --topic "+t.Topic+" --all")
		r.fail("topic "+t.Topic+" parked", list+"; fix the cause, then "+replay,
			"%d tasks were set aside; one of them because: %s", t.Parked, reason)
	}
	view.unrouted[t.Topic] = unrouted(t.RetryReason) || unrouted(reason)
}

// examinePause reports a paused topic. That is no failure, because somebody paused it on
// purpose. It is a warning if tasks are due and the pause has no end, because somebody
// may have forgotten it.
func (p Target) examinePause(r *report, t admin.TopicStatus) {
	check, resume := "topic "+t.Topic+" paused", p.command("topic resume "+t.Topic)
	if t.Backlog > 0 && t.PausedUntil.IsZero() {
		r.warn(check, resume, "paused: nothing is delivered, and %d tasks are due", t.Backlog)
		return
	}
	r.info(check, "paused: nothing is delivered, and %d tasks are due; %s ends it", t.Backlog, resume)
}

// parkedReason returns why the first of a topic's parked tasks was parked.
func (p Target) parkedReason(ctx context.Context, t admin.TopicStatus) string {
	for _, s := range t.PerShard {
		if s.Parked == 0 {
			continue
		}
		page, err := p.Store.Topic(t.Topic).Shard(s.Shard).Parked(ctx, 0, 1)
		if err == nil && len(page) > 0 {
			return page[0].Reason
		}
	}
	return "not known"
}

// examineReasons reports the reasons why the fleet is unhealthy that no other check
// reports.
func (p Target) examineReasons(r *report, docs documents, view fleetView) {
	for _, reason := range view.status.Reasons(time.Now()) {
		switch reason.Kind {
		case admin.NoScanner, admin.Unserved, admin.Configuration, admin.Paused, admin.Retries, admin.ParkedTasks:
		case admin.SourceAway:
			if docs.known { // otherwise this machine can't reach Consul either, and another finding says so
				r.fail("fleet configuration", "look at the way from those scanners to consul: "+p.command("doctor")+" there",
					"degraded: %s", reason.Text)
			}
		case admin.OtherSource:
			r.fail("fleet source", "give it the source of the others, or stop it; to switch on purpose see \"One source of "+
				"topics\" in docs/deploy.md", "%s", reason.Text)
		case admin.Unread:
			r.fail("topic "+reason.Topic+" records", "run scanners of the version that wrote them again", "%s", reason.Text)
		case admin.Late:
			view.late[reason.Topic] = reason.Text
		default:
			r.fail("topic "+reason.Topic+" tasks", p.command("status --topic "+reason.Topic), "%s", reason.Text)
		}
	}
}

// unrouted reports whether RabbitMQ returned a task's message because no queue is bound.
func unrouted(reason string) bool { return strings.Contains(reason, "NO_ROUTE") }

// examineWaiting reports tasks that wait for another attempt, and tasks that have been
// due for long. It leaves out those that another finding explains.
func (p Target) examineWaiting(r *report, view fleetView, brokers brokers) {
	if len(view.live()) == 0 || brokers.first == nil || brokers.alarm != "" || r.failed("topics served") {
		return
	}
	for _, t := range view.status.Topics {
		explained := r.failed("topic "+t.Topic+" binding") || r.failed("topic "+t.Topic+" queue") ||
			r.failed("topic "+t.Topic+" exchange")
		if t.Retrying > 0 && !explained {
			list := p.command("tasks ls " + t.Topic + " --state retrying")
			r.fail("topic "+t.Topic+" retries", "fix the cause; see them with "+list,
				"%d tasks wait for another attempt: %s", t.Retrying, t.RetryReason)
		}
		if text, late := view.late[t.Topic]; late && !t.Paused && !r.failed("topic "+t.Topic+" ") {
			r.fail("topic "+t.Topic+" late", p.command("status --topic "+t.Topic)+"; see DuefleetTasksLate in docs/alerts.md",
				"%s", text)
		}
	}
}

// failed reports whether a check with this prefix failed.
func (r *report) failed(check string) bool {
	return slices.ContainsFunc(r.findings, func(f Finding) bool {
		return f.State == Fail && strings.HasPrefix(f.Check, check)
	})
}
