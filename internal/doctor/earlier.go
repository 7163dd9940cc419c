package doctor

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// oldOnes is the check of what earlier documents left at the broker.
const oldOnes = "old queues and intakes"

// earlier has settings that topics had, by topic, also of topics without a document.
type earlier struct {
	settings map[string][]config.Topic
	// unread are the errors of settings that couldn't be read.
	unread []error
}

// readEarlier reads the histories of all topics. Without Consul there are none: then it reads
// the documents that Redis keeps, if stored says that it answers.
func (p Target) readEarlier(ctx context.Context, stored bool) (all earlier) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if p.Consul == nil {
		return p.readKept(ctx, stored)
	}
	histories, err := p.Consul.Histories(ctx)
	if err != nil {
		return earlier{unread: []error{err}}
	}
	all.settings = make(map[string][]config.Topic, len(histories))
	for _, name := range slices.Sorted(maps.Keys(histories)) {
		if h := histories[name]; h.Err != nil {
			all.unread = append(all.unread, h.Err)
		} else {
			all.settings[name] = topicconfig.Earlier(h.History)
		}
	}
	return all
}

// readKept reads the documents in Redis, several at the same time.
func (p Target) readKept(ctx context.Context, stored bool) earlier {
	all := earlier{settings: map[string][]config.Topic{}}
	if !stored {
		return all
	}
	names, err := p.Store.Registry().Topics(ctx)
	if err != nil {
		return earlier{unread: []error{err}}
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for _, name := range names {
		group.Go(func() error {
			documents, err := p.Store.Registry().Documents(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			for _, raw := range documents {
				if doc := config.ParseDocument(name, raw, 0); doc.Err == nil {
					all.settings[name] = append(all.settings[name], doc.Topic)
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		all.unread = []error{err}
	}
	return all
}

// examineEarlier reports what earlier documents left at the broker: the intakes of all topics,
// and the queues that topics declared. It leaves out queues of topics that aren't bound now.
func (p Target) examineEarlier(ctx context.Context, r *report, b *broker, docs documents, past earlier,
	bound func(topic string) bool) {
	if p.Consul == nil && slices.ContainsFunc(slices.Collect(maps.Values(docs.good)), config.Topic.TakesIn) {
		r.unchecked("old intakes", "without consul only the last documents are known, which Redis keeps: 10 of each topic")
	}
	for _, err := range past.unread {
		p.historyUnread(ctx, r, err)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(past.settings)), func(name string) bool {
		_, good := docs.good[name]
		return !good && (docs.has(name) || !docs.known)
	})
	r.eachTopic(ctx, oldOnes, names, func(r *report, name string) {
		t, there := docs.good[name]
		if there && t.Declare != nil && bound(name) {
			for _, left := range topicconfig.LeftBindings(past.settings[name], t) {
				p.examineOldQueue(ctx, r, b, name, t, left)
			}
		}
		for _, left := range topicconfig.LeftIntakes(past.settings[name], docs.good) {
			unbind := topicconfig.UnbindCommand(left, b.uri.Vhost)
			if there && p.Consul != nil {
				unbind = p.command("topic set " + name + " --unbind-old")
			}
			p.examineOldIntake(ctx, r, b, name, left, unbind)
		}
	})
}

// historyUnread reports why earlier documents couldn't be read.
func (p Target) historyUnread(ctx context.Context, r *report, err error) {
	if consul.Forbidden(err) {
		r.unchecked(oldOnes, "consul.token may not read %s/history/, as an operator's may: docs/deploy.md, Rights",
			p.Settings.Consul.Prefix)
		return
	}
	why := unanswered(ctx, err)
	if why == "" {
		why = err.Error()
	}
	r.unchecked(oldOnes, "the history of documents: %s", why)
}
