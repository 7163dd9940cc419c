package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTrial breaks a healthy fleet in one way after the other. Each time doctor names
// exactly one cause, its advice fixes it, and every stored task is delivered. Before, during
// and after the fault all tools agree; see verdicts.
func TestTrial(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	redisCLI(t)
	rows := map[string]func(*testing.T){
		"a mistyped document":                   mistypedDocument,
		"a mistyped document, undone":           mistypedDocumentUndone,
		"a forgotten pause":                     forgottenPause,
		"a lost binding":                        lostBinding,
		"no scanner":                            noScanner,
		"a broker without memory":               brokerWithoutMemory,
		"a Redis that evicts":                   evictingRedis,
		"records of a newer format":             newerRecords,
		"a stray scanner with a file":           strayScanner,
		"users that a restart of Redis forgets": forgottenUsers,
		"an old queue that is still bound":      oldBinding,
		"a right that the scanners lack":        missingRight,
		"a wrong password in password_file":     wrongPassword,
		"a full Redis":                          fullRedis,
		"a Redis that lost its data":            emptiedRedis,
		"a Redis that became a replica":         replica,
		"a scanner that died":                   deadScanner,
		"an exchange of another type":           otherExchange,

		"no Redis":                                  noRedis,
		"a Redis that is nearly full":               nearlyFullRedis,
		"a clock of Redis that is wrong":            wrongClock,
		"a shard's key of another type":             mistypedShard,
		"a topic's key of another type":             mistypedTopic,
		"two placements of one epoch":               forkedPlacement,
		"a placement that Redis lost":               lostPlacement,
		"no RabbitMQ":                               noRabbitMQ,
		"an exchange that somebody deleted":         lostExchange,
		"an intake whose exchange has another type": otherIntake,
		"an exchange without a queue":               noQueue,
		"a rate that is too low":                    lowRate,
		"a topic's removal that ended early":        interruptedRemoval,
		"no Consul":                                 noConsul,
		"a Consul that refuses the scanners":        refusingConsul,
		"a fleet that starts without its servers":   startAlone,
		"a document that vanished":                  vanishedDocument,
		"a configuration file that vanished":        missingFile,
		"a configuration file with a mistake":       refusedFile,
		"a certificate that ends soon":              endingCertificate,
	}
	var done atomic.Int32
	t.Run("rows", func(t *testing.T) {
		for name, row := range rows {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				row(t)
				done.Add(1)
			})
		}
	})
	if int(done.Load()) == len(rows) { // else -run chose some, or one failed
		raisesAll(t)
	}
}

// trial is a fleet of two scanners to be broken and repaired. Its topic, orders, has a
// document in Consul.
type trial struct {
	t        *testing.T
	settings fleet.Settings
	config   string // the file of scanners and operators
	scanners []*fleet.Scanner
	tasks    []string // the IDs of all tasks, which are also their payloads
	queue    string   // the queue of the tasks
	found    []string // the checks that reported the fault
	phases   []phase  // so far
}

// newTrial returns a healthy fleet with tasks that are due in an hour.
func newTrial(t *testing.T, s fleet.Settings) *trial {
	t.Helper()
	s.Topics = nil
	if s.ConsulAddr == "" {
		s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	}
	tr := &trial{t: t, settings: s, config: writeSettings(t, s), queue: "orders.due"}
	tr.run("scanner topic create orders shards=2 declare.queue=orders.due declare.queue_type=classic --no-wait --config " +
		tr.config)
	tr.begin(tr.config)
	return tr
}

// newTrialWithFile is newTrial for scanners that have their topics in the file at path.
func newTrialWithFile(t *testing.T) (tr *trial, path string) {
	t.Helper()
	s := newSettings(t)
	s.Topics = served()
	tr, path = &trial{t: t, settings: s, config: writeSettings(t, s), queue: "orders.due"}, writeSettings(t, s)
	tr.begin(path)
	return tr, path
}

// begin starts the scanners with a configuration file, and stores tasks. Later starts of the
// scanners don't wait until they are ready, since a fault may keep them from that.
func (tr *trial) begin(path string) {
	tr.t.Helper()
	for range 2 {
		tr.scanners = append(tr.scanners, startScannerWith(tr.t, fleet.ScannerConfig{Config: path, Unready: true}))
	}
	tr.awaitHealthy()
	tr.schedule("1h")
	healthy := tr.scrape()
	tr.phases = []phase{{healthy, healthy}}
}

// schedule stores three tasks that are due after the given time. It uses Redis's default
// user, so that a fault of the scanners' user doesn't affect it.
func (tr *trial) schedule(in string) {
	tr.t.Helper()
	for range 3 {
		id := fmt.Sprint("o-", len(tr.tasks))
		tr.producer("schedule", id, "--payload", id, "--in", in)
		tr.tasks = append(tr.tasks, id)
	}
}

func (tr *trial) producer(verb, id string, args ...string) {
	tr.t.Helper()
	args = append([]string{verb, "orders", "--id", id, "--redis-addr", tr.settings.RedisAddr, "--redis-prefix",
		tr.settings.RedisPrefix}, args...)
	must(tr.t, command(tr.t, nil, programs.Producer, args...))
}

// run runs a command line as an operator would, with this build's scanner.
func (tr *trial) run(line string) {
	tr.t.Helper()
	cmd := command(tr.t, nil, "sh", "-c", line)
	cmd.Env = environ("PATH=" + filepath.Dir(programs.Scanner) + ":" + os.Getenv("PATH"))
	must(tr.t, cmd)
}

// finds waits until doctor reports a fault with this check, state and text. No other
// check may fail, except the ones in also, which have the same cause. It returns the
// advice by check.
func (tr *trial) finds(check, state, what string, also ...string) map[string]string {
	tr.t.Helper()
	tr.found = append(also, check)
	var failing []string
	code := 0
	defer func() {
		if tr.t.Failed() {
			tr.t.Logf("all tools say: %s", tr.read())
		}
	}()
	if state == "fail" {
		failing, code = slices.Sorted(slices.Values(tr.found)), 1
	}
	f := untilFile(tr.t, tr.config, "doctor to find "+check, nil, func(f findings) bool {
		return f.code == code && f.says(check, state, what, "") && slices.Equal(f.failing(), failing)
	})
	advice := map[string]string{}
	for _, x := range f.list {
		if slices.Contains(tr.found, x.Check) {
			advice[x.Check] = x.Fix
		}
	}
	return advice
}

// failing returns the checks that fail, sorted.
func (f findings) failing() (checks []string) {
	for _, x := range f.list {
		if x.State == "fail" {
			checks = append(checks, x.Check)
		}
	}
	slices.Sort(checks)
	return checks
}

// advised returns the command in an advice that starts with begin, up to a semicolon.
func (tr *trial) advised(advice, begin string) string {
	tr.t.Helper()
	line := regexp.MustCompile(regexp.QuoteMeta(begin) + `[^;]*`).FindString(advice)
	if line == "" {
		tr.t.Fatalf("the advice %q has no command %q", advice, begin)
	}
	return line
}

// says fails the test unless an advice contains this text. It is for advice without a
// complete command.
func (tr *trial) says(advice, text string) {
	tr.t.Helper()
	if !strings.Contains(advice, text) {
		tr.t.Errorf("the advice %q doesn't say %q", advice, text)
	}
}

// awaitHealthy waits until doctor finds nothing wrong and no longer reports the fault.
func (tr *trial) awaitHealthy() {
	tr.t.Helper()
	untilFile(tr.t, tr.config, "doctor to find a healthy fleet", nil, func(f findings) bool {
		gone := !slices.ContainsFunc(f.list, func(x finding) bool {
			return slices.Contains(tr.found, x.Check) &&
				x.Fix != ""
		})
		return f.code == 0 && gone && f.says("fleet", "ok", "2 scanners run", "")
	})
	tr.agree(verdicts{Status: problem.Healthy, Ready: []int{200, 200}})
}

// heals fails the test unless the fleet is healthy again and delivers every stored task,
// from before the fault and during it. It makes the later ones due.
func (tr *trial) heals() {
	tr.t.Helper()
	tr.awaitHealthy()
	for _, id := range tr.tasks[:3] {
		tr.producer("reschedule", id, "--in", "0s")
	}
	ch := servertest.Channel(tr.t, tr.settings.RabbitMQURL)
	messages, err := ch.Consume(tr.queue, "", true, false, false, false, nil)
	check.OK(tr.t, err)
	for missing := slices.Clone(tr.tasks); len(missing) > 0; {
		got := string(check.Receive(tr.t, fmt.Sprintf("tasks %q in %s", missing, tr.queue), messages).Body)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == got })
	}
	tr.awaitHealthy()
	tr.alertsAre(nil)
}

// stop stops the scanners with SIGTERM, and start starts them again.
func (tr *trial) stop() {
	tr.t.Helper()
	check.OK(tr.t, fleet.StopAll(check.Context(tr.t), tr.scanners))
}

func (tr *trial) start() {
	tr.t.Helper()
	for _, s := range tr.scanners {
		check.OK(tr.t, s.Start(check.Context(tr.t)))
	}
}

// restart stops the scanners and starts them again.
func (tr *trial) restart() {
	tr.t.Helper()
	tr.stop()
	tr.start()
}
