package registry

import "testing"

// TestWhatRedisDoesNotTellIsNoWarning: a service may leave lines of INFO out.
func TestWhatRedisDoesNotTellIsNoWarning(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# Memory\r\nmaxmemory_policy:allkeys-lru\r\n", "# Persistence\r\nrdb_saves:1\r\n"} {
		if known := warningsOf(text); len(known) > 0 {
			t.Errorf("%q tells %q", text, known)
		}
	}
	if known := warningsOf("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"); len(known) != 2 ||
		known[Eviction]+known[Persistence] != "" {
		t.Errorf("the warnings are %q", known)
	}
}

// TestMemoryIsReadFromInfo: memory that doesn't count for maxmemory is left out.
func TestMemoryIsReadFromInfo(t *testing.T) {
	t.Parallel()
	if m, told := memoryOf("maxmemory:100\r\n"); told {
		t.Errorf("without the used memory: %+v", m)
	}
	m, told := memoryOf("used_memory:95\r\nmem_not_counted_for_evict:5\r\nmaxmemory:100\r\n" +
		"maxmemory_policy:allkeys-lru\r\n")
	if !told || m.Share() != 0.9 || !m.Evicts {
		t.Errorf("with memory that doesn't count: %+v", m)
	}
}

// TestAReplicaNamesItsMaster: a master is no replica.
func TestAReplicaNamesItsMaster(t *testing.T) {
	t.Parallel()
	info := ParseInfo("# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n")
	if r, yes := ReplicaOf("10.0.0.2:6379", info); !yes || r != (Replica{"10.0.0.2:6379", "10.0.0.1:6379"}) {
		t.Errorf("a replica: %+v, %v", r, yes)
	}
	if _, yes := ReplicaOf("10.0.0.1:6379", ParseInfo("role:master\r\n")); yes {
		t.Error("a master is a replica")
	}
}
