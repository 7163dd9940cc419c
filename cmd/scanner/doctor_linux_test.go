package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorEndsAtASignal: it prints the findings that it has by then.
func TestDoctorEndsAtASignal(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	o := newOperator(t, "rabbitmq: {urls: ['amqp://guest:guest@"+faults.Blackhole(t)+"/']}\n"+
		"topics: {orders: {shards: 1}}\n")
	o.configure(t, "redis: {addrs: ['"+server.Addr()+"'], prefix: x}\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := &check.Log{}
	ended := o.begin(ctx, told, "doctor")
	rdb := redis.NewClient(servertest.RedisOptions(server.Addr()).Simple())
	defer rdb.Close()
	check.Until(t, "doctor's last question to Redis", func() bool {
		info, err := rdb.Info(t.Context(), "commandstats").Result()
		return err == nil && regexp.MustCompile(`cmdstat_eval:calls=[5-9]`).MatchString(info) // four are for rights
	})
	cancel()
	signaled := time.Now()
	code := check.Receive(t, "doctor to end", ended)
	// The five seconds are for a slow machine.
	if took := time.Since(signaled); took > time.Second+5*time.Second {
		t.Errorf("doctor ended %s after the signal", took)
	}
	if text := told.String(); code != cli.Failed || !strings.Contains(text, "redis.rights") ||
		!strings.Contains(text, "not checked: rabbitmq.connection: interrupted") {
		t.Errorf("code %d: %s", code, text)
	}
}

// TestDoctorSaysOnceWhatItCouldNotCheck: an address that swallows packets is no fault. But
// without Redis nothing is known about the fleet.
func TestDoctorSaysOnceWhatItCouldNotCheck(t *testing.T) {
	t.Parallel()
	addr := faults.Blackhole(t)
	o := newOperator(t, fmt.Sprintf("consul: {addr: '%s'}\nrabbitmq: {urls: ['amqp://guest:guest@%s/']}\n", addr, addr))
	o.configure(t, "redis: {addrs: ['"+addr+"'], prefix: x}\n")
	code, text := o.call("doctor")
	if code != cli.Failed || !strings.Contains(text, "couldn't ask the fleet") {
		t.Errorf("code %d: %s", code, text)
	}
	for _, server := range []string{"redis", "consul", "rabbitmq"} {
		line := "not checked: " + server + ".connection: no answer within 5s"
		if strings.Count(text, line) != 1 || strings.Count(text, server+".connection") != 1 {
			t.Errorf("want only %q:\n%s", line, text)
		}
	}
}
