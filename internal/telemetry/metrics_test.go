package telemetry

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// sample declares a metric of a scanner, sampleTopic declares metrics of a topic.
type sample struct {
	RedisUp Switch `metric:"redis_up" help:"1 while Redis answers."`
}

type sampleTopic struct {
	Forwarded prometheus.Counter  `metric:"forwarded_total" help:"Tasks forwarded."`
	Nacked    prometheus.Counter  `metric:"nacked_total" help:"Messages refused."`
	Lateness  prometheus.Observer `metric:"lateness_seconds" buckets:".001 .002" help:"How late."`
}

// metrics are registered samples.
type metrics struct {
	*sample
	set    Set
	errors *Errors
	topic  func(name string) *sampleTopic
}

func newMetrics(t *testing.T) (*prometheus.Registry, *metrics) {
	t.Helper()
	reg, m := prometheus.NewPedanticRegistry(), &metrics{}
	m.sample, m.errors = Declare[sample](&m.set), Declare[Errors](&m.set)
	m.topic = DeclareForTopics[sampleTopic](&m.set)
	check.OK(t, m.set.Register(reg))
	return reg, m
}

func TestForgottenTopicLeavesNoSeries(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	old := m.topic("orders")
	old.Forwarded.Inc()
	m.topic("mail").Nacked.Inc()
	m.set.Forget("orders")
	old.Forwarded.Inc()
	_, left := check.Metrics(t, reg)
	for series := range left {
		if strings.Contains(series, "topic=orders") {
			t.Errorf("%s is still exported", series)
		}
	}
	m.topic("orders")
	check.Series(t, reg, map[string]float64{
		`forwarded_total{topic=orders}`: 0,
		`nacked_total{topic=mail}`:      1,
	})
}

// TestAHistogramIsThereBeforeItsFirstValue, which isn't lost.
func TestAHistogramIsThereBeforeItsFirstValue(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	lateness := m.topic("orders").Lateness
	m.topic("mail")
	shows := func(sum float64, counts ...uint64) {
		t.Helper()
		families, err := reg.Gather()
		check.OK(t, err)
		for _, f := range families {
			for _, series := range f.GetMetric() {
				h := series.GetHistogram()
				if h == nil || series.GetLabel()[0].GetValue() != "orders" {
					continue
				}
				got := []uint64{h.GetBucket()[0].GetCumulativeCount(), h.GetBucket()[1].GetCumulativeCount(), h.GetSampleCount()}
				if !slices.Equal(got, counts) || h.GetSampleSum() != sum || h.GetBucket()[1].GetUpperBound() != .002 {
					t.Errorf("counts %d, sum %g, want %d, %g", got, h.GetSampleSum(), counts, sum)
				}
				return
			}
		}
		t.Error("no histogram")
	}
	shows(0, 0, 0, 0)
	var values sync.WaitGroup
	for range 8 {
		values.Go(func() { lateness.Observe(1.0 / 512) })
	}
	values.Wait()
	shows(8.0/512, 0, 8, 8)
	m.topic("orders").Lateness.Observe(1)
	shows(1+8.0/512, 0, 8, 9)
}

func TestTopicsComeAndGoWhileCountingGoesOn(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				m.topic("orders").Forwarded.Inc()
				m.topic("mail").Forwarded.Inc()
				m.set.Forget("orders")
			}
		})
	}
	wg.Wait()
	_, got := check.Metrics(t, reg)
	if _, ok := got[`forwarded_total{topic=orders}`]; ok || got[`forwarded_total{topic=mail}`] != 800 {
		t.Errorf("orders exported: %t; mail forwarded: %v, want 800", ok, got[`forwarded_total{topic=mail}`])
	}
}

func TestTakenNameRegistersNothing(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "duefleet_nacked_total", Help: "Somebody else's."}))
	set := &Set{}
	Declare[sample](set)
	DeclareForTopics[sampleTopic](set)
	if set.Register(reg) == nil {
		t.Fatal("registered over a name that was taken")
	}
	if got, _ := check.Metrics(t, reg); len(got) != 1 {
		t.Errorf("exported %v, want the other's gauge alone", got)
	}
}

// TestProblemsAreSeriesWhileTheyLast: one for each kind and topic. A problem that is over
// leaves none.
func TestProblemsAreSeriesWhileTheyLast(t *testing.T) {
	t.Parallel()
	reg := NewRegistry()
	third := problem.New(problem.ShardUnserved, "orders", "shard 3")
	third.Shard = "3"
	found := []problem.Problem{
		problem.New(problem.ShardUnserved, "orders", "shard 2"), third,
		problem.New(problem.IntakeStopped, "mails", "no queue"), problem.New(problem.RedisUnreachable, "", "refused"),
	}
	check.OK(t, AddProblems(reg, 2, func() []problem.Problem { return found }))
	check.Series(t, reg, map[string]float64{
		`problem{kind=shard_unserved,topic=orders}`: 1,
		`problem{kind=intake_stopped,topic=mails}`:  1,
		`problem{kind=redis_unreachable,topic=}`:    1,
	})
	found = nil
	_, left := check.Metrics(t, reg)
	for series := range left {
		if series[:7] == "problem" {
			t.Errorf("%s is there, and the problem is over", series)
		}
	}
	if AddProblems(reg, 2, func() []problem.Problem { return nil }) == nil {
		t.Error("added twice")
	}
}
