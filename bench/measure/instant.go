package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	scannerMB   = "scanner MB"
	redelivered = "redelivered"
)

func instant() Measure {
	return Measure{
		Name: "instant", Title: "1,000,000 due at one instant, into a durable quorum queue",
		Takes: 60 * time.Second, Once: true,
		Goals: []report.Goal{
			{Subject: duefleet, Name: perSecond, Over: bareSame, AtLeast: 0.9},
			{Subject: duefleet, Name: scannerMB, AtMost: 150},
			{Subject: duefleet, Name: redelivered, None: true},
			{Subject: duefleet, Name: faults, None: true},
		},
		Notes: []string{
			"MB: the most resident memory of the largest scanner. Redelivered: tasks whose lease ended",
			"The bare publisher sends 100,000 messages",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := bare(ctx, r, s, harness.Quorum, r.Size(100_000), harness.Same); err != nil {
				return err
			}
			f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: harness.Quorum})
			if err != nil {
				return err
			}
			if err := drained(ctx, r, f, s, duefleet, harness.Backlog{Tasks: r.Size(1_000_000)}); err != nil {
				return err
			}
			return largest(ctx, f, s, duefleet)
		},
	}
}

// largest adds the memory of the largest scanner, and the number of redelivered tasks.
func largest(ctx context.Context, f *harness.Fleet, s *Results, subject string) error {
	if err := addMost(f, harness.PeakRSS, s, subject, scannerMB); err != nil {
		return err
	}
	again, err := f.Metric(ctx, "duefleet_redelivered_total")
	s.Add(subject, redelivered, again)
	return err
}

// inFlight measures a scanner's memory while it has a full window of the largest
// payloads.
func inFlight() Measure {
	const resting = "raw: the same scanner before anything is due"
	return Measure{
		Name: "in-flight", Title: "2,000 due payloads of 256 KiB, one scanner", Takes: 10 * time.Second,
		// By default a scanner holds 64 MiB of payloads. The garbage collector lets the
		// heap double before it runs.
		Goals: []report.Goal{
			{Subject: duefleet, Name: scannerMB, Over: resting, AtMostMore: 150},
			{Subject: duefleet, Name: redelivered, None: true},
			{Subject: duefleet, Name: faults, None: true},
		},
		Notes: []string{"MB: the most resident memory, or for raw the resident memory before the first task is due. All " +
			"payloads together are 524 MB"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			const bytes = 256 << 10
			f, err := r.StartFleet(ctx, harness.FleetConfig{Scanners: 1})
			if err != nil {
				return err
			}
			if err := warm(ctx, r, f, f.Queue); err != nil {
				return err
			}
			rss, err := harness.RSS(f.PIDs()[0])
			if err != nil {
				return err
			}
			s.Add(resting, scannerMB, float64(rss)/1e6)
			if err := drained(ctx, r, f, s, duefleet, harness.Backlog{From: warmUp, Tasks: r.Size(2000),
				Bytes: bytes}); err != nil {
				return err
			}
			return largest(ctx, f, s, duefleet)
		},
	}
}
