package shard

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// mostConnections is how many a store has to one node. One hears wake-ups, and one is the convoy's.
// go-redis may need two more at the same time, to ask about the cluster.
const mostConnections = 4

// TestConnectionsGrowWithNodesAlone: a store that listens to topics, draws tickets and looks at
// shards needs as many connections for many topics and shards as for few.
func TestConnectionsGrowWithNodesAlone(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	setup := sandboxOn(t, servertest.RedisOptions(addr), prefix, 1)
	cluster, ok := setup.rdb.(*redis.ClusterClient)
	if !ok {
		t.Skip("the shared Redis is no cluster")
	}
	for _, shards := range []int{4, 64} {
		for _, topics := range []int{10, 200} {
			w := &many{t: t, shards: shards}
			for i := range topics {
				w.names = append(w.names, fmt.Sprintf("m%d-%d", shards, i))
				_, err := setup.store.Topic(w.names[i]).Ensure(t.Context(), shards)
				check.OK(t, err)
			}
			options := servertest.RedisOptions(addr)
			options.ClientName = fmt.Sprintf("%s-%d-%d", prefix, shards, topics)
			w.while(options, prefix, func() { w.count(cluster, options.ClientName) })
		}
	}
}

// many polls topics with as many shards each.
type many struct {
	t      *testing.T
	shards int
	names  []string
	topics []*Topic
	convoy *Convoy
}

// while calls then while a store of its own listens to the topics, and has polled them.
func (w *many) while(options *redis.UniversalOptions, prefix string, then func()) {
	w.t.Helper()
	options.DialTimeout, options.ReadTimeout = check.Hang, check.Hang
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	store, err := New(rdb, prefix)
	check.OK(w.t, err)
	ctx, end := context.WithCancel(w.t.Context())
	listener := store.NewListener()
	w.convoy = store.NewConvoy()
	var running sync.WaitGroup
	running.Go(func() { listener.Run(ctx) })
	defer running.Wait()
	defer end()
	var listenings []*Listening
	for _, name := range w.names {
		topic := store.Topic(name)
		w.topics = append(w.topics, topic)
		heard := listener.Listen(topic, Hearing{Listens: func(error) {}})
		heard.Shards(w.shards)
		listenings = append(listenings, heard)
	}
	for _, l := range listenings {
		check.Until(w.t, "every message is heard", func() bool { _, all := l.Heard(); return all })
	}
	for range 3 {
		w.round()
	}
	then()
	w.convoy.Wait()
}

// round draws once for each topic, and looks at all shards, all at the same time.
func (w *many) round() {
	w.t.Helper()
	var under sync.WaitGroup
	draw := Draw{Instance: "here", N: w.shards, Stay: time.Second, Scanned: w.shards}
	for _, topic := range w.topics {
		under.Add(1)
		w.convoy.Draw(w.t.Context(), topic, draw, func(_ Drawn, err error) {
			check.OK(w.t, err)
			under.Done()
		})
		byNode := map[string][]int{}
		for at := range w.shards {
			node := topic.Shard(at).Node(w.t.Context())
			byNode[node] = append(byNode[node], at)
		}
		for node, some := range byNode {
			under.Add(1)
			w.convoy.Look(topic, node, some, func(found []Attention) {
				for _, seen := range found {
					check.OK(w.t, seen.Err)
				}
				under.Done()
			})
		}
	}
	under.Wait()
}

// count counts the connections of a client to each node, by their name.
func (w *many) count(cluster *redis.ClusterClient, name string) {
	w.t.Helper()
	check.OK(w.t, cluster.ForEachMaster(w.t.Context(), func(ctx context.Context, node *redis.Client) error {
		list, err := node.ClientList(ctx).Result()
		if err != nil {
			return err
		}
		all, listens := 0, 0
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name="+name+" ") {
				all++
				if !strings.Contains(line, " ssub=0 ") {
					listens++
				}
			}
		}
		w.t.Logf("%d topics, M = %d: %d connections to %s, %d of them to listen", len(w.names), w.shards, all, node, listens)
		if listens != 1 || all < 2 || all > mostConnections {
			w.t.Errorf("%d topics, M = %d: %d connections to %s, %d of them listen; want at most %d, one of which listens",
				len(w.names), w.shards, all, node, listens, mostConnections)
		}
		return nil
	}))
}
