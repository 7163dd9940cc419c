package problem

import "cmp"

// Kind is the kind of a problem. The names are an interface.
type Kind string

// The kinds. serverRows and fleetRows say what each means.
const (
	RedisUnreachable     Kind = "redis_unreachable"
	RedisRefuses         Kind = "redis_refuses"
	RedisFull            Kind = "redis_full"
	RedisNearlyFull      Kind = "redis_nearly_full"
	RedisUnsafe          Kind = "redis_unsafe"
	DataLost             Kind = "data_lost"
	ClockOffset          Kind = "clock_offset"
	RabbitMQUnreachable  Kind = "rabbitmq_unreachable"
	RabbitMQBlocked      Kind = "rabbitmq_blocked"
	ExchangeMissing      Kind = "exchange_missing"
	RouteRefused         Kind = "route_refused"
	TopicUnserved        Kind = "topic_unserved"
	ShardUnserved        Kind = "shard_unserved"
	ConsulAway           Kind = "consul_away"
	ConsulRefuses        Kind = "consul_refuses"
	CertificateExpiring  Kind = "certificate_expiring"
	SourceAway           Kind = "source_away"
	OtherSource          Kind = "other_source"
	DocumentRefused      Kind = "document_refused"
	ConfigurationRefused Kind = "configuration_refused"
	NotConfigured        Kind = "not_configured"
	TopicNotMade         Kind = "topic_not_made"
	TopicOrphan          Kind = "topic_orphan"
	IntakeStopped        Kind = "intake_stopped"
	TopicPaused          Kind = "topic_paused"
	TasksRetried         Kind = "tasks_retried"
	TasksLate            Kind = "tasks_late"
	TasksParked          Kind = "tasks_parked"
	TasksOrphaned        Kind = "tasks_orphaned"
	RateLimited          Kind = "rate_limited"
	RecordsUnreadable    Kind = "records_unreadable"
	PlacementForked      Kind = "placement_forked"
	ShardsUnreadable     Kind = "shards_unreadable"
	TopicUnreadable      Kind = "topic_unreadable"
	RemovalInterrupted   Kind = "removal_interrupted"
	NoScanner            Kind = "no_scanner"
	ScannerDead          Kind = "scanner_dead"
	Stopping             Kind = "stopping"
)

// Effect says how a problem harms tasks.
type Effect string

// The effects.
const (
	None    Effect = "none"
	Late    Effect = "late"    // they wait, and none is lost.
	Refused Effect = "refused" // producers can't store them.
	Lost    Effect = "lost"    // acknowledged tasks may be lost.
	// Mistimed: they leave at a wrong time.
	Mistimed Effect = "early or late"
)

// row describes a kind. advice is safe: it loses no task. anchor is a heading of
// docs/alerts.md. alert has the names of the alerts that show problems of the kind, or
// "none: " and the reason.
type row struct {
	kind     Kind
	severity Severity
	effect   Effect
	advice   string
	anchor   string
	alert    string
}

// serverRows describes the problems with Redis, RabbitMQ and Consul. An array needs no memory of
// its own: a scanner with 1,000 topics that starts looks up thousands of kinds.
func serverRows() [16]row {
	return [16]row{
		{RedisUnreachable, Broken, Late, "start Redis, or look at this scanner's network and password", "duefleetredisdown",
			"DuefleetRedisDown"},
		{RedisRefuses, Broken, Late, "grant the right that the text names", "duefleettopicblocked",
			"DuefleetTopicBlocked DuefleetRedisDown"},
		{RedisFull, Broken, Refused, "raise maxmemory, or remove what isn't needed from this Redis", "duefleetredisfull",
			"DuefleetRedisFull"},
		{RedisNearlyFull, Degraded, None, "raise maxmemory before it is reached, or remove what isn't needed",
			"duefleetredisnearlyfull", "DuefleetRedisNearlyFull"},
		{RedisUnsafe, Notice, Lost, "run the commands that scanner doctor prints", "duefleetredisunsafe",
			"DuefleetRedisUnsafe"},
		{DataLost, Broken, Lost, "restore the data, or schedule the tasks again; then run scanner data accept",
			"duefleetdatalost", "DuefleetDataLost"},
		{ClockOffset, Degraded, Mistimed, "set the wrong clock right: Redis's, or this machine's", "duefleetclockoffset",
			"DuefleetClockOffset DuefleetScannerClock"},
		{RabbitMQUnreachable, Broken, Late, "start RabbitMQ, or look at this scanner's network, vhost and password",
			"duefleetrabbitmqdown", "DuefleetRabbitMQDown"},
		{RabbitMQBlocked, Broken, Late, "free memory or disk of RabbitMQ", "duefleetrabbitmqblocked",
			"DuefleetRabbitMQBlocked"},
		{ExchangeMissing, Broken, Late, "create the exchange, or set declare", "duefleettopicblocked",
			"DuefleetTopicBlocked"},
		{RouteRefused, Broken, Late, "set declare to what exists, or grant the right", "duefleettopicblocked",
			"DuefleetTopicBlocked"},
		{TopicUnserved, Broken, Late, "read the text; a scanner that starts or stops is soon done", "duefleettaskslate",
			"DuefleetProblem"},
		{ShardUnserved, Degraded, Late, "look at the type of the shard's keys", "duefleetshardrefused",
			"DuefleetShardRefused"},
		{ConsulAway, Degraded, None, "bring Consul back, or give the scanner a token that it takes", "duefleetconsuldown",
			"DuefleetConsulDown"},
		{ConsulRefuses, Notice, None, "give the scanner a token that has the rights in the text", "duefleetconsuldown",
			"none: delivery goes on without it"},
		{CertificateExpiring, Degraded, None, "renew the certificate", "duefleetcertificateexpires",
			"DuefleetCertificateExpires DuefleetCertificateEnds"},
	}
}

// fleetRows describes the problems with settings, tasks and scanners.
func fleetRows() [22]row {
	return [22]row{
		{SourceAway, Degraded, None, "bring the configuration file back", "duefleetconfigrefused",
			"DuefleetProblemMinor"},
		{OtherSource, Degraded, None, "give the scanner the source of the others, or stop it", "duefleetconfigdiffers",
			"DuefleetProblemMinor"},
		{DocumentRefused, Degraded, None, "fix the document with scanner topic set", "duefleetconfigrefused",
			"DuefleetConfigRefused"},
		{ConfigurationRefused, Degraded, None, "fix what scanner check prints", "duefleetconfigrefused",
			"DuefleetConfigRefused"},
		{NotConfigured, Degraded, Late, "wait, or look at the way to Consul and Redis", "duefleetconsuldown",
			"DuefleetProblem"},
		{TopicNotMade, Degraded, Refused, "look at the topic's keys and rights in Redis", "duefleettopicblocked",
			"DuefleetProblem"},
		{TopicOrphan, Degraded, None, "give this scanner the source of the others; if none has the document, set it again " +
			"or remove the topic", "duefleetconfigrefused", "DuefleetProblemMinor"},
		{IntakeStopped, Degraded, Late, "look at the exchange and queue of the intake", "duefleetproblem",
			"DuefleetProblem"},
		{TopicPaused, Degraded, Late, "resume the topic when the pause has no more reason", "duefleettopicpaused",
			"DuefleetTopicPaused"},
		{TasksRetried, Degraded, Late, "fix what the broker says; the tasks are tried again", "duefleetmessagesrefused",
			"DuefleetMessagesRefused"},
		{TasksLate, Degraded, Late, "look at the other problems first", "duefleettaskslate", "DuefleetTasksLate"},
		{TasksParked, Degraded, Late, "fix the cause, then replay the tasks", "duefleettasksparked",
			"DuefleetTasksParked"},
		{TasksOrphaned, Degraded, Late, "wait some minutes; scanners recover them", "metrics-to-watch",
			"none: scanners recover them"},
		{RateLimited, Notice, Late, "raise rate, if the consumers can take more", "duefleettaskslate",
			"none: the rate was chosen"},
		{RecordsUnreadable, Broken, Late, "run scanners of the version that wrote the records", "duefleettasksunreadable",
			"DuefleetTasksUnreadable"},
		{PlacementForked, Degraded, Late, `follow docs/operate.md, "Two placements of one epoch"`, "duefleetmovestuck",
			"DuefleetMoveStuck"},
		{ShardsUnreadable, Degraded, Late, "look at the type of the shards' keys", "duefleetshardrefused",
			"DuefleetShardRefused"},
		{TopicUnreadable, Degraded, Late, "look at the type of the topic's keys", "duefleetshardrefused",
			"none: scanners report topic_not_made or redis_unreachable"},
		{RemovalInterrupted, Degraded, Late, "run scanner topic rm again", "problems",
			"none: the command that ended early said so"},
		{NoScanner, Broken, Late, "start a scanner", "duefleetnoscanner", "DuefleetNoScanner"},
		{ScannerDead, Degraded, None, "start the scanner again", "duefleetscannersmissing", "DuefleetScannersMissing"},
		{Stopping, Notice, None, "wait; the other scanners go on", "problems", "none: it passes by itself"},
	}
}

// row returns the kind's description. An unknown kind, of a newer version, has only its
// name.
func (k Kind) row() row {
	for _, r := range serverRows() {
		if r.kind == k {
			return r
		}
	}
	for _, r := range fleetRows() {
		if r.kind == k {
			return r
		}
	}
	return row{kind: k, severity: Degraded}
}

// Shared reports whether problems of the kind concern the whole fleet, even if only some
// scanners report them. A scanner that started after a loss doesn't know what was lost.
func (k Kind) Shared() bool { return k.row().effect == Lost }

// Advice returns what to do about problems of the kind; "" if this version doesn't know it.
func (k Kind) Advice() string { return k.row().advice }

// Anchor returns the heading of docs/alerts.md that explains problems of the kind:
// "problems" if this version doesn't know it.
func (k Kind) Anchor() string { return cmp.Or(k.row().anchor, "problems") }
