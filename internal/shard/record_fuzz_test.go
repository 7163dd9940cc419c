package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// seedRecords begins a fuzzing with the golden vectors, whole and cut, and with
// what they leave out.
func seedRecords(f *testing.F) {
	for _, v := range golden[recordVectors](f, "record.json").Records {
		whole := v.bytes(f)
		f.Add(whole)
		f.Add(whole[:len(whole)/2])
	}
	f.Add("")
	f.Add("\x20")
	f.Add("\x30")
	f.Add("\x40")
	f.Add("\x50")
	f.Add("\x40" + headRest + "\x04markmark\x05group\x00payload")
	f.Add("\x44" + headRest + "\x00\x02no\x04markmark\x05group\x01\x01c\x00payload")
	f.Add("\x40" + headRest + "\x04markmark\x05group\x02\x00\x00\x00\x00\x02\x00\x00payload")
	f.Add("\x40" + headRest + "\x04markmark\x05group\x03" + strings.Repeat("\x00", 25) + "\x00payload")
	f.Add("\x20" + headRest + "\x02\x00\x00\x00\x00\x02\x00\x00payload")
	f.Add(head)
	for _, flags := range []string{"\x10", "\x11", "\x12", "\x14", "\x18", "\x1f", "\xff"} {
		f.Add(flags + headRest + "\x00\x03\x3f\xf0\x00\x00\x00\x00\x00\x00\x00\x02no\x01\x01c\x01\x01k\x00\x01vpayload")
	}
	for _, option := range []string{"\x13x-duefleet-priority\x00\x039x9", "\x13x-duefleet-priority\x00\x0210",
		"\x15x-duefleet-expiration\x00\x045000", "\x10x-duefleet-newer\x00\x00"} {
		f.Add(head + "\x01\x00\x01" + option + "payload")
	}
	f.Add(head + "\x01\x18application/octet-stream\x02\x01b\x00\x01v\x01b\x00\x01w")
}

// resealed packs what was decoded again, as the scripts' seal and EncodeBody do
// together. The score from before an export, which Go passes over, is the record's.
func resealed(r *Record) string {
	flags, prior := r.raw[0]%formatUnit, recordHead
	if flags&flagAttempted != 0 {
		prior += 2
	}
	if r.Attempt == 1 {
		flags &^= flagAttempted
	}
	b := []byte{r.raw[0]/formatUnit*formatUnit + flags}
	b = append(b, big48(r.Due.UnixMilli())+big48(r.Scheduled.UnixMilli())+r.Op...)
	if r.Attempt > 1 {
		b = binary.BigEndian.AppendUint16(b, uint16(r.Attempt-1))
	}
	if flags&flagExported != 0 {
		b = append(b, r.raw[prior:prior+8]...)
	}
	if flags&flagNoted != 0 {
		note := r.Reason
		if !r.ReasonAt.IsZero() {
			note += fmt.Sprintf(" @%013d", r.ReasonAt.UnixMilli())
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(note)))
		b = append(b, note...)
	}
	body := []byte(bodyOf(&r.Task))
	r.mark.Set(r.ID, body)
	return string(b) + string(body)
}

// told is all that a record says, in one text.
func told(r Record) string {
	body := ""
	if r.AMQP != nil {
		body, r.AMQP, r.Payload = bodyOf(&r.Task), nil, nil
	}
	r.raw = ""
	if r.Recurrence != nil {
		body, r.Recurrence = fmt.Sprintf("%s %+v", body, *r.Recurrence), nil
	}
	return fmt.Sprintf("%q", fmt.Sprintf("%+v %s", r, body))
}

// FuzzDecodeRecord: no bytes make decoding panic. An unreadable record is refused by its
// format, its length or its options. A readable record stays the same when it is packed
// again.
func FuzzDecodeRecord(f *testing.F) {
	seedRecords(f)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := DecodeRecord("orders", "o-1", text)
		if err != nil {
			var newer *FormatError
			format := byte(recordFormat)
			if text != "" {
				format = text[0] / formatUnit
			}
			known := format >= recordFormat && format <= groupFormat
			if errors.As(err, &newer) == known || known && !strings.Contains(err.Error(), "cut short") &&
				!strings.HasPrefix(err.Error(), "option") && !strings.HasPrefix(err.Error(), "decode message") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if r.Attempt < 1 || r.ContentType == "" && r.AMQP == nil || r.Topic != "orders" || r.ID != "o-1" ||
			len(r.Payload) > len(text)-recordHead {
			t.Fatalf("decoded %q to %+v", text, r)
		}
		again, err := DecodeRecord("orders", "o-1", resealed(&r))
		if err != nil || told(again) != told(r) {
			t.Fatalf("packed again: %v\n got %s\nwant %s", err, told(again), told(r))
		}
		if resealed(&again) != resealed(&r) {
			t.Fatalf("packed twice: got %q, want %q", resealed(&again), resealed(&r))
		}
	})
}

// FuzzScriptsReadRecords: the scripts can open every record that Go can decode, and
// write the same content. So no record is good for one and broken for the other.
func FuzzScriptsReadRecords(f *testing.F) {
	addr, _ := servertest.Redis(f)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	f.Cleanup(func() { _ = rdb.Close() })
	lib, err := sources.ReadFile("scripts/lib_record.lua")
	check.OK(f, err)
	reseal := redis.NewScript(string(lib) + "\nlocal r = open(ARGV[1])\nreturn r and seal(r) or ''")
	seedRecords(f)
	f.Fuzz(func(t *testing.T, text string) {
		sealed, err := reseal.Run(t.Context(), rdb, nil, text).Text()
		if err != nil {
			t.Fatalf("open %q: %v", text, err)
		}
		want, err := DecodeRecord("orders", "o-1", text)
		if err != nil {
			return
		}
		got, err := DecodeRecord("orders", "o-1", sealed)
		if err != nil || told(got) != told(want) {
			t.Fatalf("the scripts made %q of %q: %v\n got %s\nwant %s", sealed, text, err, told(got), told(want))
		}
	})
}
