package selfcheck

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// Metrics show what the checks found; telemetry.Set says what the tags mean.
type Metrics struct {
	RedisUnsafe telemetry.SwitchVec  `metric:"redis_unsafe" label:"reason" help:"1 while Redis is set to lose tasks that it acknowledged; the reason is eviction or persistence. Absent if unknown."`
	ClockOffset *prometheus.GaugeVec `metric:"redis_clock_offset_seconds" help:"How far Redis's clock is ahead of this machine's; negative if it is behind. In a Redis Cluster, of the master with the largest offset. Absent if unknown."`
	MemoryUsed  *prometheus.GaugeVec `metric:"redis_memory_used_bytes" help:"Memory of Redis that counts for maxmemory. In a Redis Cluster, of the fullest master. Absent if unknown."`
	MemoryMax   *prometheus.GaugeVec `metric:"redis_memory_max_bytes" help:"maxmemory of that server. Absent if it is unknown or has no limit."`
}

// fullest shows the memory of the fullest server, in bytes. most is 0 if it has no limit.
func (m *Metrics) fullest(used, most int64) {
	m.MemoryUsed.WithLabelValues().Set(float64(used))
	if most > 0 {
		m.MemoryMax.WithLabelValues().Set(float64(most))
	} else {
		m.MemoryMax.Reset()
	}
}
