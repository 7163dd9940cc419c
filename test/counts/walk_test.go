package main

import (
	"reflect"
	"testing"
)

func TestParseFunctions(t *testing.T) {
	t.Parallel()
	got := parseFunctions(`github.com/duefleet/duefleet/internal/shard/put.go:12:	Put		85.7%
github.com/duefleet/duefleet/internal/shard/put.go:40:	Topic.Put		100.0%
github.com/duefleet/duefleet/internal/shard/read.go:9:	Read		0.0%
github.com/duefleet/duefleet/producer/schedule.go:9:	Schedule		1.0%
github.com/duefleet/duefleet/test/counts/walk/main.go:9:	main		100.0%
total	(statements)	12.3%
`)
	want := walk{Files: []string{"internal/shard/put.go", "producer/schedule.go"}, Functions: 3}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
