package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TestListsWithPayloads: of more tasks than one request reads, and of several topics. Bytes
// that are no text are in base64. A table has no room.
func TestListsWithPayloads(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	const noText = "\xff\x00"
	want := map[string]string{}
	for _, topic := range []string{"orders", "mails"} {
		o.parkAs(topic, "parked", "no route")
		for n := range 130 {
			id, data := fmt.Sprintf("%s-%d", topic, n), fmt.Sprintf(`{"n":%d}`, n)
			if n == 7 {
				data = noText
			}
			want[topic+" "+id] = data
			entry := shard.Entry{ID: id, When: task.In(time.Hour), Body: append([]byte{0}, data...)}
			if err := router.New(o.store).Topic(topic).Schedule(t.Context(), []shard.Entry{entry})[0].Err; err != nil {
				t.Fatal(err)
			}
		}
	}
	type line struct {
		Topic, ID string
		Payload   *string
		Base64    string `json:"payload_base64"`
	}
	list := func(args ...string) (lines []line) {
		t.Helper()
		code, text := o.call(append(args, "-o", "ndjson", "--payload")...)
		if code != cli.Done {
			t.Fatalf("code %d: %s", code, text)
		}
		for one := range strings.Lines(text) {
			var l line
			if err := json.Unmarshal([]byte(one), &l); err != nil {
				t.Fatalf("%v: %s", err, one)
			}
			lines = append(lines, l)
		}
		return lines
	}
	got := map[string]string{}
	for _, topic := range []string{"orders", "mails"} {
		for _, l := range list("tasks", "ls", topic, "--state", "waiting") {
			data, _ := base64.StdEncoding.DecodeString(l.Base64)
			if l.Payload != nil {
				data = []byte(*l.Payload)
			}
			if got[l.Topic+" "+l.ID] = string(data); (l.Payload == nil) != (string(data) == noText) {
				t.Errorf("%+v", l)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	parked := list("parked", "ls")
	if len(parked) != 2 || parked[0].Topic == parked[1].Topic || parked[0].Payload == nil || *parked[0].Payload != "" {
		t.Errorf("parked: %+v", parked)
	}
	o.wants(cli.Usage, "--payload needs -o json", "parked", "ls", "--payload")
	o.wants(cli.Usage, "--payload needs -o json", "tasks", "ls", "orders", "--payload")
}
