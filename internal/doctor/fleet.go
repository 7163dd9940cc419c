package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
)

// fleetStatus is the check of the fleet's status.
const fleetStatus = "fleet"

// fleetView is the fleet as Redis knows it.
type fleetView struct {
	// heard is true if the heartbeats were read.
	heard  bool
	status admin.Status
	// reasons holds, by topic, why its first parked task was parked.
	reasons map[string]string
	// late holds, by topic, a sentence that says how long its tasks have been due.
	late map[string]string
	// unrouted holds the topics with messages that RabbitMQ returned because no queue is
	// bound.
	unrouted map[string]bool
}

// live returns the live members.
func (f fleetView) live() []balance.Member { return balance.Live(f.status.Fleet) }

// of returns the fleet's problems of some kinds.
func (f fleetView) of(kinds ...problem.Kind) (found []problem.Problem) {
	for _, p := range f.status.Problems {
		if slices.Contains(kinds, p.Kind) {
			found = append(found, p)
		}
	}
	return found
}

// has reports whether the fleet has a problem of a kind with a topic.
func (f fleetView) has(kind problem.Kind, topic string) bool {
	return slices.ContainsFunc(f.of(kind), func(p problem.Problem) bool { return p.Topic == topic })
}

// examineFleet compares the documents with what the fleet applies. It also reports
// everything that `scanner status --exit-code` counts as unhealthy. It leaves late tasks
// to examineWaiting, because later findings may explain them.
func (p Target) examineFleet(ctx context.Context, r *report, found answers) {
	docs, view, brokers := found.docs, found.fleet, found.brokers
	switch err := found.unread; {
	case found.replica:
		r.unchecked(fleetStatus, "its state in a replica may be old")
		return
	case err == nil:
	case shard.Denied(err):
		r.unchecked(fleetStatus, "no right to read it: %v", err)
	case view.heard && unanswered(ctx, err) != "":
		r.unchecked("counts of tasks", "%s", unanswered(ctx, err))
	default:
		r.failErr(ctx, err, fleetStatus, p.command("status"), "%v", err)
	}
	if !view.heard {
		return
	}
	live := view.live()
	p.examineMembers(ctx, r, found)
	p.examineServed(r, view, docs, brokers)
	p.examineProblems(r, docs, view, brokers)
	for _, t := range view.status.Topics {
		p.examineTasks(r, t, view)
	}
	if docs.known {
		p.examineOrphans(ctx, r, docs, view)
		r.eachTopic(ctx, "documents in force", slices.Sorted(maps.Keys(docs.good)), func(r *report, name string) {
			p.examineApplied(ctx, r, name, docs.good[name], len(live) > 0)
		})
	}
}

// readFleet reads the scanners' heartbeats first: they have the fleet's problems. The view is
// heard if they could be read, even if err says why the tasks couldn't be counted.
func (p Target) readFleet(ctx context.Context) (view fleetView, err error) {
	view = fleetView{late: map[string]string{}, unrouted: map[string]bool{}, reasons: map[string]string{}}
	members, err := balance.Members(ctx, p.Store)
	if err != nil {
		return view, err
	}
	view.heard = true
	view.status = admin.Status{Fleet: members, Problems: problem.Merge(balance.Problems(members))}
	status, err := admin.ReadStatus(ctx, p.Store, "")
	if err != nil {
		return view, err
	}
	view.status = status
	parked := slices.ContainsFunc(status.Topics, func(t admin.TopicStatus) bool { return t.Parked > 0 })
	lists := parked && p.mayList(ctx)
	for _, t := range status.Topics {
		if t.Parked > 0 && lists {
			view.reasons[t.Topic] = p.parkedReason(ctx, t)
		}
		view.unrouted[t.Topic] = unrouted(t.RetryReason) || unrouted(view.reasons[t.Topic])
	}
	return view, nil
}

// examineMembers reports who runs, and which documents they refuse. A scanner whose user lacks a
// right may run and not be heard.
func (p Target) examineMembers(ctx context.Context, r *report, found answers) {
	view, docs, live := found.fleet, found.docs, found.fleet.live()
	switch prefix := p.Settings.Redis.Prefix; {
	case len(live) == 0 && found.lacks:
		r.fail("fleet", "grant what "+redisRights+" names; if there is no heartbeat 5 seconds later, "+p.command("run"),
			"no scanner sends heartbeats under prefix %s: none runs, or they may not", prefix)
		return
	case len(live) == 0:
		r.fail("fleet", p.command("run"), "no scanner runs under prefix %s: nothing is delivered", prefix)
		return
	case len(live) == 1:
		r.warn("fleet", p.command("run")+" on another machine", "only scanner %s runs: nobody would take over from it",
			live[0].Instance)
	default:
		r.ok("fleet", "%d scanners run", len(live))
	}
	for _, found := range view.of(problem.DocumentRefused, problem.ConfigurationRefused) {
		topic := found.Topic
		if _, broken := docs.broken[topic]; broken {
			continue // examineBroken reports it
		}
		check, fix := "topic "+topic+" document", p.command("topic set "+topic+" key=value")
		if topic == "" {
			check, fix = "fleet configuration", p.command("check")
		}
		r.fail(check, fix, "%s: %s", scanners(found.Nodes, "refuses it, and uses the last good one",
			"refuse it, and use the last good one"), found.Text)
	}
	p.examineDocuments(ctx, r, live)
}

// examineServed reports the topics that scanners can't serve: one finding for each
// text, with its topics and scanners. It leaves out problems that a finding about the
// brokers or about a document explains.
func (p Target) examineServed(r *report, view fleetView, docs documents, brokers brokers) {
	type group struct{ topics, members []string }
	groups := map[string]*group{}
	for _, found := range view.status.Problems {
		if !servedBy(found) || brokers.explains(found.Kind) || docs.explains(found) {
			continue
		}
		why := found.Text
		if s, others := view.withoutDocument(found.Topic); others && found.Kind == problem.TopicOrphan {
			r.fail("topic "+found.Topic+" served", s.fix(false), "%s", s.what())
			continue
		}
		if groups[why] == nil {
			groups[why] = &group{}
		}
		groups[why].topics = append(groups[why].topics, found.Topic)
		groups[why].members = append(groups[why].members, found.Nodes...)
	}
	for _, why := range slices.Sorted(maps.Keys(groups)) {
		topics, members := distinct(groups[why].topics), distinct(groups[why].members)
		check, fix := "topics served", p.command("status")
		if len(topics) == 1 {
			check, fix = "topic "+topics[0]+" served", p.command("status --topic "+topics[0])
		}
		it := itOrNames(topics)
		r.fail(check, fix, "%s: %s", scanners(members, "doesn't serve "+it, "don't serve "+it), why)
	}
}

// servedBy reports whether a problem keeps scanners from serving a topic.
func servedBy(found problem.Problem) bool {
	return found.Topic != "" && len(found.Nodes) > 0 && found.Kind != problem.DocumentRefused
}

// explains reports whether a finding about a topic's document, or about whether it is
// applied, explains a scanner's problem.
func (d documents) explains(found problem.Problem) bool {
	switch found.Kind {
	case problem.TopicOrphan:
		return d.known && !d.has(found.Topic)
	case problem.TopicNotMade:
		return d.known && d.has(found.Topic)
	}
	return false
}

// scanners returns a sentence about scanners: their names, and what one or several do.
func scanners(names []string, does, do string) string {
	if len(names) == 1 {
		return "scanner " + names[0] + " " + does
	}
	return "scanners " + strings.Join(names, ", ") + " " + do
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
func (p Target) examineTasks(r *report, t admin.TopicStatus, view fleetView) {
	if t.Paused {
		p.examinePause(r, t)
	}
	if t.Parked > 0 {
		list, replay := p.command("parked ls --topic "+t.Topic), p.command("parked replay --topic "+t.Topic+" --all")
		r.fail("topic "+t.Topic+" parked", list+"; fix the cause, then "+replay,
			"%d tasks were set aside; %s", t.Parked, because(view.reasons[t.Topic]))
	}
}

// because returns a clause about why one of the parked tasks was parked; "" means that
// nobody could be asked.
func because(reason string) string {
	if reason == "" {
		return "why, only an operator's user of Redis may read"
	}
	return "one of them because: " + reason
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
		page, err := p.Store.Topic(t.Topic).Shard(s.Shard).Parked().Next(ctx)
		if err == nil && len(page) > 0 {
			return page[0].Reason
		}
	}
	return "not known"
}

// examineProblems reports the fleet's problems that no other check reports.
func (p Target) examineProblems(r *report, docs documents, view fleetView, brokers brokers) {
	live := len(view.live())
	for _, found := range view.status.Problems {
		if found.Kind == problem.ConsulRefuses {
			r.warn("consul.registration", found.Advice, "%s", found.Line(live))
		}
		if found.Severity == problem.Notice || servedBy(found) || brokers.explains(found.Kind) {
			continue
		}
		line := found.Line(live)
		switch found.Kind {
		case problem.NoScanner, problem.DocumentRefused, problem.ConfigurationRefused, problem.TopicPaused,
			problem.TasksRetried, problem.TasksParked:
		case problem.SourceAway:
			r.fail("fleet configuration", found.Advice, "degraded: %s", line)
		case problem.RemovalInterrupted:
			r.fail("topic "+found.Topic+" removal", p.command("topic rm "+found.Topic), "%s", found.Text)
		case problem.PlacementForked:
			r.fail("topic "+found.Topic+" placement", found.Advice, "%s", found.Text)
		case problem.ConsulAway:
			if !docs.refused { // otherwise this machine can't read it either, and another finding says so
				r.fail("fleet configuration", "look at the way from those scanners to consul: "+p.command("doctor")+" there",
					"degraded: %s", line)
			}
		case problem.OtherSource:
			r.fail("fleet source", "give it the source of the others, or stop it; to switch on purpose see \"One source of "+
				"topics\" in docs/deploy.md", "%s", line)
		case problem.ScannerDead:
			r.fail("fleet members", "start them again, or wait until the list forgets them, ten minutes after they died",
				"%s", line)
		case problem.RecordsUnreadable:
			r.fail("topic "+found.Topic+" records", "run scanners of the version that wrote them again", "%s", found.Text)
		case problem.TasksLate:
			view.late[found.Topic] = found.Text
		default:
			check, fix := "topic "+found.Topic+" tasks", p.command("status --topic "+found.Topic)
			if found.Topic == "" {
				check, fix = "fleet", found.Advice
			}
			r.fail(check, fix, "%s", whole(found, live))
		}
	}
}

// whole returns a problem's text, with its scanners if it isn't about a topic. A check's name
// has the topic already.
func whole(found problem.Problem, live int) string {
	if found.Topic != "" {
		return found.Text
	}
	return found.Line(live)
}

// unrouted reports whether RabbitMQ returned a task's message because no queue is bound.
func unrouted(reason string) bool { return strings.Contains(reason, "NO_ROUTE") }

// examineWaiting reports tasks that wait for another attempt, and tasks that have been
// due for long. It leaves out those that another finding explains.
func (p Target) examineWaiting(r *report, view fleetView, brokers brokers) {
	if len(view.live()) == 0 || brokers.refused || brokers.alarm != "" || r.failed("topics served") {
		return
	}
	for _, t := range view.status.Topics {
		explained := func() bool {
			return r.failed("topic "+t.Topic+" binding") || r.failed("topic "+t.Topic+" queue") ||
				r.failed("topic "+t.Topic+" exchange")
		}
		if t.Retrying > 0 && !explained() {
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
