package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
)

const (
	// sampleEvery is the time between two samples, whether somebody looks or not. Reports of
	// scanners are about the last minute, so samples miss nothing.
	sampleEvery = 30 * time.Second
	// sampleLimit limits the reading of one sample.
	sampleLimit = 10 * time.Second
	// samplesLast is how long a sample is kept.
	samplesLast = time.Hour
	// maxSampled is how many topics a sample has: the fastest.
	maxSampled = 1000
)

// measure is how fast a topic was in the minute before a sample. The percentiles of its
// lateness are in seconds, 0 if it forwarded nothing.
type measure struct{ PerSecond, Median, Worst float64 }

// sample has the measures of topics at a time.
type sample struct {
	at     time.Time
	topics map[string]measure // without topics that forwarded nothing
	// cut is true if more topics forwarded something than the sample has.
	cut bool
}

// newSample returns what live scanners report.
func newSample(at time.Time, fleet []balance.Member) sample {
	notes := map[string]balance.TopicNote{}
	for _, m := range balance.Live(fleet) {
		for topic, note := range m.Topics {
			if note.PerSecond > 0 {
				notes[topic] = notes[topic].Plus(note)
			}
		}
	}
	fastest := slices.SortedFunc(maps.Keys(notes), func(a, b string) int {
		return cmp.Or(cmp.Compare(notes[b].PerSecond, notes[a].PerSecond), cmp.Compare(a, b))
	})
	s := sample{at: at, topics: map[string]measure{}, cut: len(fastest) > maxSampled}
	for _, topic := range fastest[:min(len(fastest), maxSampled)] {
		note := notes[topic]
		s.topics[topic] = measure{note.PerSecond, note.Lateness.Quantile(.5).Seconds(), note.Lateness.Quantile(.99).Seconds()}
	}
	return s
}

// samples has the samples of the last hour. Its methods are safe for concurrent use.
type samples struct {
	mu    sync.Mutex
	taken []sample // the oldest first
}

// add keeps a sample and forgets those that are too old.
func (s *samples) add(newest sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, newest)
	s.taken = slices.DeleteFunc(s.taken, func(old sample) bool { return newest.at.Sub(old.at) > samplesLast })
}

// point has the measure of one topic in one sample.
type point struct {
	At time.Time
	measure
}

// of returns the samples of a topic in the hour before now. since is the time of the first
// sample that is kept, zero if there is none.
func (s *samples) of(topic string, now time.Time) (points []point, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.taken {
		if i == 0 {
			since = one.at
		}
		m, there := one.topics[topic]
		if now.Sub(one.at) <= samplesLast && (there || !one.cut) {
			points = append(points, point{one.at, m})
		}
	}
	return points, since
}

// sample reads what scanners report until ctx ends. A reading that fails leaves a gap.
func (c *Console) sample(ctx context.Context) {
	read := measured(c.metrics, "samples", func(ctx context.Context) ([]balance.Member, error) {
		ctx, cancel := context.WithTimeout(ctx, sampleLimit)
		defer cancel()
		return balance.Members(ctx, c.store)
	})
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if fleet, err := read(ctx); err == nil {
			c.samples.add(newSample(time.Now(), fleet))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
