package livepage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// shardsOf returns n shards, each with more tasks than the one before; some are late.
func shardsOf(n int, late map[int]time.Duration) (all []shard.Stats) {
	for i := range n {
		v := shard.Stats{Shard: i, Pending: int64(i * 10), Oldest: now.Add(time.Hour)}
		if d, ok := late[i]; ok {
			v.Oldest, v.Backlog, v.Pending = now.Add(-d), 7, v.Pending+7
		}
		if v.Pending == 0 {
			v.Oldest = time.Time{}
		}
		all = append(all, v)
	}
	return all
}

// outage returns a status in which RabbitMQ is away during a change of M.
func outage() operate.Status {
	const away = "rabbitmq: connect to 10.0.0.5:5672: dial tcp 10.0.0.5:5672: connect: connection refused"
	return operate.Status{
		Warnings: []string{"10.0.0.4:6379 evicts tasks at maxmemory: maxmemory-policy is allkeys-lru"},
		Topics: []operate.TopicStatus{
			{
				Topic: "invoices", Shards: 4, Epoch: 1, Phase: shard.Stable, Polled: 4, Pending: 60, PerShard: shardsOf(4, nil),
				Paused: true, Settings: map[string]string{"paused": "true"},
				Notes: []string{away, "paused: nothing is delivered until it is resumed; 0 tasks are due"},
			},
			{
				Topic: "orders", Shards: 64, Previous: 4, Epoch: 2, Phase: shard.Migrating, Polled: 64,
				Change: &operate.Change{Since: now.Add(-20 * time.Second), Clean: 17, Moved: 45_100, Misplaced: 54_900, Rate: 2255,
					End: now.Add(25 * time.Second)},
				Pending: 120_345, Backlog: 12_345, Retrying: 3, Oldest: now.Add(-95 * time.Second),
				PerSecond: 1234.5, Median: .0042, Worst: 1.25, PerShard: shardsOf(64,
					map[int]time.Duration{3: 95 * time.Second, 17: 12 * time.Second}),
				Settings: map[string]string{"declare.queue": "orders.due", "window": "500"},
				Notes:    []string{away, "3 tasks wait for another attempt: returned: 312 NO_ROUTE"},
			},
			{
				Topic: "reminders.eu", Shards: 4096, Epoch: 9, Phase: shard.Stable, Polled: 4096, Pending: 83_865_600, Parked: 12,
				PerShard: shardsOf(4096, map[int]time.Duration{2000: 30 * time.Second}), Notes: []string{away},
			},
		},
		Fleet: members,
	}
}

// pageOf returns a page that has read a status.
func pageOf(s operate.Status, width, height int) *page {
	p := &page{every: time.Second}
	p.resized(width, height)
	p.ended(reading{status: s, at: now})
	return p
}

// TestPageAsSeen compares the page in a small and in a large terminal with testdata.
func TestPageAsSeen(t *testing.T) {
	t.Parallel()
	pages := map[string]func(p *page){
		"outage":        func(p *page) { p.pressed("down", now) },
		"outage_shards": func(p *page) { p.pressed("j", now); p.pressed("enter", now) },
		"4096_shards":   func(p *page) { p.topic = "reminders.eu" },
		"unread": func(p *page) {
			p.began(now.Add(2 * time.Second))
			p.ended(reading{failed: "read the fleet: dial tcp 10.0.0.4:6379: connect: connection refused; check redis.addrs"})
			p.began(now.Add(3 * time.Second))
		},
		"healthy": func(p *page) {
			s := operate.Status{Fleet: members[:1], Topics: []operate.TopicStatus{{
				Topic: "orders", Shards: 1, Epoch: 1, Phase: shard.Stable, Polled: 1, Pending: 1, PerShard: shardsOf(2, nil)[1:],
			}}}
			s.Topics[0].PerShard[0].Shard = 0
			p.ended(reading{status: s, at: now})
		},
		"empty": func(p *page) { p.ended(reading{at: now}) },
		"first": func(p *page) { *p = page{every: p.every, width: p.width, height: p.height} },
	}
	for name, do := range pages {
		for _, size := range [][2]int{{80, 24}, {200, 60}} {
			full := fmt.Sprintf("watch_%s_%dx%d", name, size[0], size[1])
			t.Run(full, func(t *testing.T) {
				t.Parallel()
				p := pageOf(outage(), size[0], size[1])
				do(p)
				got := ""
				for _, line := range p.lines(now.Add(5 * time.Second)) {
					got += strings.TrimRight(line, " ") + "\n"
				}
				isGolden(t, full, got)
			})
		}
	}
}

// TestPageFitsEveryTerminal: with every size and every content, the page has as many lines
// as the terminal, and none is wider. It says if the terminal is too small.
func TestPageFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	many := operate.Status{}
	for i := range 300 {
		many.Topics = append(many.Topics, operate.TopicStatus{Topic: fmt.Sprintf("topic-%d", i), Phase: shard.Removed,
			PerShard: []shard.Stats{{Shard: 4}}})
		many.Fleet = append(many.Fleet, balance.Member{Instance: fmt.Sprint(i)})
	}
	for name, s := range map[string]operate.Status{"none": {}, "some": fleetStatus, "outage": outage(), "many": many} {
		for _, width := range []int{0, 1, 2, 5, 6, 20, 59, 60, 80, 81, 300} {
			for height := range 70 {
				p := pageOf(s, width, height)
				for _, key := range strings.Fields("- down enter down up enter k esc j s q") {
					p.pressed(key, now)
					lines := p.lines(now)
					if len(lines) != height {
						t.Fatalf("%s at %dx%d has %d lines behind key %s", name, width, height, len(lines), key)
					}
					for _, line := range lines {
						if len([]rune(line)) > width {
							t.Fatalf("%s at %dx%d: line %q", name, width, height, line)
						}
					}
					if small := width < leastWidth || height < leastHeight; height > 0 && width > 3 &&
						small != strings.HasPrefix(lines[height-1], "cut") {
						t.Fatalf("%s at %dx%d ends with %q", name, width, height, lines[height-1])
					}
				}
			}
		}
	}
}

// TestTheChosenTopicStaysChosen: the choice stays if other topics appear before it. If the
// topic is gone, the first is chosen.
func TestTheChosenTopicStaysChosen(t *testing.T) {
	t.Parallel()
	p := pageOf(outage(), 80, 24)
	for _, step := range []struct{ key, want string }{
		{"-", "invoices"}, {"up", "invoices"}, {"down", "orders"}, {"j", "reminders.eu"}, {"down", "reminders.eu"},
		{"k", "orders"},
	} {
		if p.pressed(step.key, now) {
			t.Errorf("key %s ends the page", step.key)
		}
		if got := p.status.Topics[p.chosen()].Topic; got != step.want {
			t.Errorf("after key %s topic %s is chosen, want %s", step.key, got, step.want)
		}
	}
	s := outage()
	s.Topics = append([]operate.TopicStatus{{Topic: "a"}}, s.Topics...)
	if p.ended(reading{status: s, at: now}); p.status.Topics[p.chosen()].Topic != "orders" {
		t.Errorf("topic %d is chosen, want orders", p.chosen())
	}
	if p.ended(reading{status: operate.Status{Topics: s.Topics[:1]}, at: now}); p.chosen() != 0 {
		t.Errorf("topic %d is chosen, want the only one", p.chosen())
	}
	for _, key := range []string{"q", "ctrl-c"} {
		if !p.pressed(key, now) {
			t.Errorf("key %s does not end the page", key)
		}
	}
}

// TestShardsAreScrolledToTheLast: down stops when the last shard is shown, and the next up
// scrolls back at once.
func TestShardsAreScrolledToTheLast(t *testing.T) {
	t.Parallel()
	p := pageOf(outage(), 80, 24)
	p.topic = "orders"
	p.pressed("enter", now)
	shows := func(shard string) bool {
		for _, line := range p.lines(now) {
			if strings.HasPrefix(line, "  "+shard+" ") {
				return true
			}
		}
		return false
	}
	if !shows("0") || shows("63") {
		t.Errorf("it begins with\n%s", strings.Join(p.lines(now), "\n"))
	}
	for range 100 {
		p.pressed("page down", now)
	}
	if !shows("63") || shows("0") {
		t.Errorf("it ends with\n%s", strings.Join(p.lines(now), "\n"))
	}
	if p.pressed("up", now); shows("63") || !shows("62") {
		t.Errorf("a line before that is\n%s", strings.Join(p.lines(now), "\n"))
	}
}

// TestShardMapIsLegible: at any M a cell shows the worst of its shards.
func TestShardMapIsLegible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards, each, lines int
		late                map[int]time.Duration
		missing             int // a shard that can't be read; -1 is none
		want                string
	}{
		{1, 1, 2, nil, -1, "0 ."},
		{2, 1, 2, nil, -1, "0 .9"},
		{5, 1, 2, map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: time.Minute}, -1, "0 .4+!9"},
		{5, 1, 2, nil, 2, "0 .3x79"},
		{4096, 64, 2, map[int]time.Duration{64: 2 * time.Second, 4095: time.Hour}, 130, "0 1+x"},
		{4096, 1, 70, nil, -1, "64 1"},
	} {
		top := operate.TopicStatus{Polled: c.shards, PerShard: shardsOf(c.shards, c.late)}
		if c.missing >= 0 {
			top.PerShard = append(top.PerShard[:c.missing:c.missing], top.PerShard[c.missing+1:]...)
		}
		p := pageOf(operate.Status{}, 80, 24)
		got := p.shardMap(top).draw(c.lines)
		if len(got) > c.lines || !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("M %d in %d lines is\n%s\nwant %q in it", c.shards, c.lines, strings.Join(got, "\n"), c.want)
		}
		if said := strings.Contains(got[0], fmt.Sprintf("shards, %d a cell", c.each)); said != (c.each > 1) {
			t.Errorf("M %d in %d lines begins with %q", c.shards, c.lines, got[0])
		}
	}
}

// TestAChangeUnderWayIsNeverDone: the bar of a change under way isn't full, even while the
// estimate of the tasks left is 0.
func TestAChangeUnderWayIsNeverDone(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]operate.Change{
		"[----------] 0%":  {},
		"[####------] 45%": {Moved: 45_100, Misplaced: 54_900},
		"[#########-] 99%": {Clean: 3, Moved: 1000},
		"[#####-----] 50%": {Clean: 2},
	} {
		if got := bar(operate.TopicStatus{Polled: 4, Change: &c}, 10); got != want {
			t.Errorf("%+v is %s, want %s", c, got, want)
		}
	}
}

// TestNumbersFitTheirColumns: counts and ages take at most six characters.
func TestNumbersFitTheirColumns(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 99_999: "99999", 100_000: "100k", 999_499: "999k", 999_500: "1M", 1_234_567: "1.23M", 12_345_678: "12.3M",
		123_456_789_000: "123G",
	} {
		if got := short(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 900 * time.Millisecond: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		47*time.Hour + 59*time.Minute: "47h59m", 48 * time.Hour: "2d", 36_500 * 24 * time.Hour: "36500d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
