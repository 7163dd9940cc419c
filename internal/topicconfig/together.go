package topicconfig

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
)

// CheckTogether compares a plan with the documents of all topics. It returns the
// config.Conflicts that the plan makes, and sets LeftIntakes. A conflict that Consul's
// documents have already holds up no change of other settings. Every writer of documents
// calls this, or one of Plan, PlanAll and PlanUndo, which do.
func (d Documents) CheckTogether(ctx context.Context, p *Plan) error {
	if !p.reroutes() {
		return nil
	}
	list, err := d.List(ctx)
	if err != nil {
		return err
	}
	return checkTogether(list, []*Plan{p})
}

// checkTogether is CheckTogether for several plans that are written together.
func checkTogether(list []config.Document, plans []*Plan) error {
	topics := make(map[string]config.Topic, len(list)+len(plans))
	for _, doc := range list {
		topics[doc.Name] = doc.Topic
	}
	var names []string
	for _, p := range plans {
		topics[p.After.Name] = p.After.Topic
		if p.reroutes() {
			names = append(names, p.After.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	var errs []error
	for _, c := range config.Conflicts(topics, names...) {
		errs = append(errs, c)
	}
	for _, p := range plans {
		p.LeftIntakes = LeftIntakes([]config.Topic{p.Found.Topic}, topics)
	}
	return errors.Join(errs...)
}

// reroutes reports whether the plan may change which exchanges and queues a topic uses.
func (p Plan) reroutes() bool {
	if p.Found.Index == 0 || p.Found.Err != nil {
		return p.After.Topic.TakesIn() || p.After.Topic.Declare != nil
	}
	return slices.ContainsFunc(config.Diff(p.Found.Topic, p.After.Topic), func(c config.Change) bool {
		section, _, _ := strings.Cut(c.Key, ".")
		return slices.Contains([]string{"exchange", "routing_key", "intake", "declare"}, section)
	})
}
