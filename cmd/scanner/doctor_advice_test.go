package main

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// follows runs the first command of doctor's advice about a check.
func (o *operator) follows(check string) {
	o.t.Helper()
	_, advice, _ := strings.Cut(o.found(check), " -> scanner ")
	advice, _, _ = strings.Cut(advice, ";")
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(advice, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	if len(args) < 3 {
		o.t.Fatalf("no advice about %s: %q", check, o.found(check))
	}
	args = args[:len(args)-2] // without --config, which call adds
	o.wants(cli.Done, "written", append(args, "--no-wait")...)
}

// TestAdviceAboutADocumentLosesNoSetting: a document that can't be read is brought back with
// all settings that were in force.
func TestAdviceAboutADocumentLosesNoSetting(t *testing.T) {
	t.Parallel()
	settings := []string{"shards=8", "rate=50", "window=77", "declare.queue=q.due", "declare.dead_letter=q.dead"}
	for name, known := range map[string]bool{"with a history": true, "without a history": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newConsulOperator(t)
			o.wants(cli.Done, "written", append([]string{"topic", "set", "orders", "--no-wait"}, settings...)...)
			client, prefix := o.consul()
			pair, _, err := client.KV().Get(prefix+"/topics/orders", nil)
			if err != nil || pair == nil {
				t.Fatal(err)
			}
			good := string(pair.Value)
			o.serve("orders", 8)
			if err := o.store.Registry().SaveDocument(t.Context(), "orders", pair.Value); err != nil {
				t.Fatal(err)
			}
			if !known {
				if _, err := client.KV().DeleteTree(prefix+"/history/", nil); err != nil {
					t.Fatal(err)
				}
			}
			o.puts(map[string]string{"orders": "shards: [\n"})
			o.follows("topic orders document")
			pair, _, err = client.KV().Get(prefix+"/topics/orders", nil)
			if err != nil || pair == nil {
				t.Fatal(err)
			}
			before, _ := config.ParseTopic("orders", []byte(good))
			after, err := config.ParseTopic("orders", pair.Value)
			if lost := config.Diff(before, after); err != nil || len(lost) > 0 {
				t.Errorf("%v: the advice changed %v; the document is now\n%s", err, lost, pair.Value)
			}
		})
	}
}

// TestDoctorKnowsAReplica: it names the address to write instead, and makes nothing else of
// what a replica refuses.
func TestDoctorKnowsAReplica(t *testing.T) {
	t.Parallel()
	master, server := servertest.OwnRedis(t), servertest.OwnRedis(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(servertest.RedisOptions(server.Addr()).Simple())
	defer rdb.Close()
	if err := rdb.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	check.Until(t, "the replica to follow", func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	o := newOperator(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n"+intakeTopics)
	o.configure(t, "redis: {addrs: ['"+server.Addr()+"'], prefix: x}\n")
	o.finds("of a replica", "redis.role", fmt.Sprintf("fail: %s is a replica of %s, and takes no writes -> "+
		"set redis.addrs to %s, or redis.master_name", server.Addr(), master.Addr(), master.Addr()))
	code, text := o.call("doctor")
	if code != cli.Failed || strings.Contains(text, "ACL SETUSER") || strings.Contains(text, "no scanner runs") {
		t.Errorf("code %d: %s", code, text)
	}
}

// TestAdviceGrantsTheLeastRights: after the loss of a vhost, doctor names the rights that the
// topics need.
func TestAdviceGrantsTheLeastRights(t *testing.T) {
	t.Parallel()
	broker := servertest.RabbitMQ(t)
	at, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	o := newOperator(t, "rabbitmq: {urls: ['"+broker+"-lost']}\ntopics: {orders: {shards: 1, declare: {queue: "+
		"orders.due, dead_letter: orders.dead}, intake: {exchange: orders.in, queue: in}}, "+
		"mails: {shards: 1, exchange: amq.direct}}\n")
	vhost := strings.TrimPrefix(at.Path, "/") + "-lost"
	want := "rabbitmqctl add_vhost " + vhost + "; then rabbitmqctl set_permissions -p " + vhost + " guest " +
		`'^(in|in\.refused|orders|orders\.dead|orders\.due|orders\.in)$' ` +
		`'^(amq\.default|amq\.direct|in|in\.refused|orders|orders\.dead|orders\.due)$' ` +
		`'^(in|in\.refused|orders|orders\.dead|orders\.due|orders\.in)$'`
	if got := o.found("rabbitmq.connection"); !strings.HasSuffix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
