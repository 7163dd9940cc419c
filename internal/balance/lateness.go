package balance

import (
	"math"
	"time"
)

// Lateness counts tasks by how late they were. The scale of its buckets never changes, so
// that counts from members of different versions can be added up; percentiles can't. Each
// bucket's bound is 2^(1/4) times the bound before it. So a quantile is at most a fifth
// too large, and never too small.
type Lateness map[int]int64

// LatenessBuckets is the number of buckets, from 250 µs to two and a half days. Later
// tasks count in the last bucket.
const LatenessBuckets = 120

// LatenessPerDouble is the number of buckets after which the bound has doubled.
const LatenessPerDouble = 4

const firstBound = 250 * time.Microsecond

// LatenessBucket returns the bucket of a task that was this late. Early tasks are in the
// first.
func LatenessBucket(late time.Duration) int {
	if late <= firstBound {
		return 0
	}
	i := math.Ceil(LatenessPerDouble * math.Log2(float64(late)/float64(firstBound)))
	return min(int(i), LatenessBuckets-1)
}

// LatenessBound returns the upper bound of a bucket. The last one holds later tasks, too.
func LatenessBound(bucket int) time.Duration {
	return time.Duration(float64(firstBound) * math.Exp2(float64(bucket)/LatenessPerDouble))
}

// Plus returns the sum of both.
func (l Lateness) Plus(other Lateness) Lateness {
	sum := Lateness{}
	for _, counts := range []Lateness{l, other} {
		for bucket, n := range counts {
			sum[bucket] += n
		}
	}
	return sum
}

// Quantile returns an upper bound for how late the share q of the tasks was, 0 < q <= 1.
// It returns 0 if there are no tasks.
func (l Lateness) Quantile(q float64) time.Duration {
	var total, seen int64
	for _, n := range l {
		total += n
	}
	for bucket := range LatenessBuckets {
		if seen += l[bucket]; seen > 0 && float64(seen) >= q*float64(total) {
			return LatenessBound(bucket)
		}
	}
	return 0
}
