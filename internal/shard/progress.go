package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Progress is how far a change of the shard count has come.
type Progress struct {
	// Since is when it began, by Redis's clock.
	Since time.Time
	// Moved tasks so far.
	Moved int64
	// Misplaced tasks still to be moved or delivered: counted in small shards,
	// estimated from samples in large ones.
	Misplaced int64
	// Clean shards, and how many there are to be.
	Clean, Shards int
}

// Rate is how many tasks were moved a second, on the average since the change
// began.
func (p Progress) Rate(now time.Time) float64 {
	if took := now.Sub(p.Since).Seconds(); took > 0 {
		return float64(p.Moved) / took
	}
	return 0
}

// Left is how long the change will take yet at that rate; 0 if that can't be
// told.
func (p Progress) Left(now time.Time) time.Duration {
	rate := p.Rate(now)
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(p.Misplaced) / rate * float64(time.Second))
}

// progressSample is how many tasks of a shard are looked at to estimate how many
// are misplaced.
const progressSample = 64

// Progress reads how far the change under p has come. Shards that can't be read are
// left out, and named by an *UnreadableError.
func (t *Topic) Progress(ctx context.Context, p Placement) (Progress, error) {
	clean, err := t.Clean(ctx, p)
	if err != nil {
		return Progress{}, err
	}
	since, err := t.rdb.HGet(ctx, t.placementKey(), "since").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Progress{}, fmt.Errorf("read since when topic %s changes: %w", t.name, err)
	}
	out := Progress{Since: time.UnixMilli(since), Shards: len(clean)}
	pipe := t.rdb.Pipeline()
	gates := make([]*redis.SliceCmd, len(clean))
	counts := make([]*redis.IntCmd, len(clean))
	samples := make([]*redis.StringSliceCmd, len(clean))
	for i, is := range clean {
		gates[i] = pipe.HMGet(ctx, t.Shard(i).gate(), "placement", "moved")
		if is {
			out.Clean++
			continue
		}
		counts[i] = pipe.ZCard(ctx, t.Shard(i).due())
		samples[i] = pipe.ZRandMember(ctx, t.Shard(i).due(), progressSample)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	failed := map[int]error{}
	for i := range clean {
		out.Moved += movedUnder(gates[i].Val(), p)
		err := gates[i].Err()
		if samples[i] != nil {
			out.Misplaced += estimate(counts[i].Val(), samples[i].Val(), i, p)
			err = errors.Join(err, counts[i].Err(), samples[i].Err())
		}
		if err != nil {
			failed[i] = fmt.Errorf("read progress of shard %d of topic %s: %w", i, t.name, err)
		}
	}
	return out, t.LeftOut(len(clean), failed)
}

// movedUnder reads a gate's count if it is of this placement.
func movedUnder(gate []any, p Placement) int64 {
	if len(gate) < 2 || gate[0] != p.String() {
		return 0
	}
	text, _ := gate[1].(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// estimate is how many of count tasks are misplaced, going by a sample of them.
func estimate(count int64, sample []string, shard int, p Placement) int64 {
	if len(sample) == 0 {
		return 0
	}
	out := int64(0)
	for _, id := range sample {
		if p.New(id) != shard {
			out++
		}
	}
	return out * count / int64(len(sample))
}
