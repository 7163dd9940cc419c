package main

import "testing"

func TestDepthOf(t *testing.T) {
	t.Parallel()
	const sending = `goroutine 9 [running]:
main.(*recorder).look(0x1)
	/x/recorder.go:1 +0x1
github.com/duefleet/duefleet/internal/shard.(*Topic).Put(...)
	/x/shard.go:1 +0x1
github.com/redis/go-redis/v9.(*Client).Process(...)
	/x/redis.go:1 +0x1
github.com/duefleet/duefleet/internal/shard.gather.func1()
	/x/gather.go:1 +0x1
created by github.com/duefleet/duefleet/internal/shard.start in goroutine 1
	/x/gather.go:1 +0x1
`
	const waiting = `goroutine 1 [select]:
github.com/duefleet/duefleet/producer.(*Client).Schedule(...)
	/x/schedule.go:1 +0x1
main.schedule({0x1, 0x2}, 0x3)
	/x/main.go:1 +0x1
github.com/duefleet/duefleet/test/fleet.Other()
	/x/other.go:1 +0x1
`
	const other = `goroutine 2 [select]:
github.com/duefleet/duefleet/internal/shard.other(...)
	/x/schedule.go:1 +0x1
`
	for text, want := range map[string]int{
		sending:                                 2,
		sending + "\n" + other:                  2,
		sending + "\n" + other + "\n" + waiting: 3,
	} {
		if got := depthOf(text); got != want {
			t.Errorf("got %d, want %d of\n%s", got, want, text)
		}
	}
}
