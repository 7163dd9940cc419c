package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/redisdial"
)

// rule returns what is wrong with a value, or "".
type rule func(value any) string

// ruleOf reads a check tag:
//
//	1..4096, 10ms..1m  a number or a duration, both ends included
//	0..255             for a text: its length in bytes
//	text|json          one of these words
//
// or the name of one of the rules below. Without a tag, every value is allowed.
func ruleOf(tag string, zero any) rule {
	if words := strings.Split(tag, "|"); len(words) > 1 {
		return oneOf(words...)
	}
	if least, most, ok := strings.Cut(tag, ".."); ok {
		return within(zero, least, most)
	}
	named := map[string]rule{
		"": nil, "addresses": dialAddrs, "amqp urls": amqpURLs, "folder": folder, "listen": hostPort, "moment": moment,
		"prefix": letters("._-:/", 64),
		"queue":  queueName, "dead letter": optional(queueName), "intake name": optional(intakeName),
		"intake type": receivesAll, "intake key": intakeKey, "url or address": consulAddr,
	}
	r, ok := named[tag]
	if !ok {
		panic("config: no rule is called " + tag)
	}
	return r
}

// within bounds a number, a duration, or a text by its bytes.
func within(zero any, least, most string) rule {
	unit, bound := "", zero
	if _, text := zero.(string); text {
		unit, bound = " bytes", 0
	}
	low, high := bounds(bound, least), bounds(bound, most)
	return func(value any) string {
		if text, ok := value.(string); ok {
			value = len(text)
		}
		if n := measure(value); n < low || n > high {
			return fmt.Sprintf("must be %s to %s%s; got %s", least, most, unit, show(value))
		}
		return ""
	}
}

func bounds(zero any, text string) int64 {
	value, problem := parseText(zero, text)
	if problem != "" {
		panic("config: an end of a range " + problem)
	}
	return measure(value)
}

// measure returns a number, or a duration in nanoseconds.
func measure(value any) int64 { return reflect.ValueOf(value).Int() }

func oneOf(words ...string) rule {
	return func(value any) string {
		word := value.(string)
		if slices.Contains(words, word) {
			return ""
		}
		return fmt.Sprintf("must be one of %s; got %s", strings.Join(words, ", "), clip(word))
	}
}

// moment accepts "" or a time.
func moment(value any) string {
	text := value.(string)
	if _, err := time.Parse(time.RFC3339, text); text == "" || err == nil {
		return ""
	}
	return "must be a time as in 2026-12-01T10:00:00Z; got " + clip(text)
}

// queueName accepts an AMQP short string that the broker doesn't reserve.
func queueName(value any) string {
	if strings.HasPrefix(value.(string), "amq.") {
		return "must not begin with amq., which is the broker's own"
	}
	return within("", "1", "255")(value)
}

// optional allows an empty text, too.
func optional(r rule) rule {
	return func(value any) string {
		if value == "" {
			return ""
		}
		return r(value)
	}
}

// letters allows ASCII letters, digits and the extra characters, up to most.
func letters(extra string, most int) rule {
	return func(value any) string {
		text := value.(string)
		bad := strings.IndexFunc(text, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(extra, r)
		})
		if bad >= 0 || text == "" || len(text) > most {
			return fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 %s; got %s", most, strings.Join(strings.Split(extra, ""), " "),
				clip(text))
		}
		return ""
	}
}

// folder accepts the path of a folder in Consul's store.
func folder(value any) string {
	if problem := letters("._-/", 128)(value); problem != "" {
		return problem
	}
	if text := "/" + value.(string) + "/"; strings.Contains(text, "//") {
		return "must be names with one / between them; got " + clip(value.(string))
	}
	return ""
}

// hostPort accepts an address to listen at; the host is optional.
func hostPort(value any) string {
	_, port, err := net.SplitHostPort(value.(string))
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		return "must be host:port, as in 127.0.0.1:9320; got " + clip(value.(string))
	}
	return ""
}

// maxServers bounds the lists of servers.
const maxServers = 64

func dialAddrs(value any) string {
	addrs := value.([]string)
	if len(addrs) == 0 || len(addrs) > maxServers {
		return fmt.Sprintf("must be 1 to %d addresses; got %d", maxServers, len(addrs))
	}
	for i, addr := range addrs {
		if mistake := redisdial.AddrMistake(addr); mistake != "" {
			return fmt.Sprintf("%s; number %d %s", redisdial.AddrForm, i+1, mistake)
		}
	}
	return ""
}

// CheckRedisAddrs returns what is wrong with addresses of Redis, or "". It never quotes
// an address that may hold a password.
func CheckRedisAddrs(addrs []string) string { return dialAddrs(addrs) }

// consulAddr accepts "", host:port or an http or https URL. It never quotes the value: a
// URL may hold a password.
func consulAddr(value any) string {
	addr, isURL := strings.CutPrefix(value.(string), "http://")
	if !isURL {
		addr, _ = strings.CutPrefix(addr, "https://")
	}
	host, path, _ := strings.Cut(addr, "/")
	_, err := url.Parse("/" + path)
	if value.(string) == "" || redisdial.AddrMistake(host) == "" && err == nil {
		return ""
	}
	return "must be host:port or an http or https URL with a port, as in 127.0.0.1:8500"
}

// amqpURLs never quotes a URL, because each holds a password.
func amqpURLs(value any) string {
	urls := value.([]string)
	if len(urls) == 0 || len(urls) > maxServers {
		return fmt.Sprintf("must be 1 to %d URLs; got %d", maxServers, len(urls))
	}
	for i, u := range urls {
		if problem := amqpURL(u); problem != "" {
			return fmt.Sprintf("number %d %s", i+1, problem)
		}
	}
	return ""
}

func amqpURL(text string) string {
	if !strings.HasPrefix(text, "amqp://") && !strings.HasPrefix(text, "amqps://") {
		return "must begin with amqp:// or amqps://"
	}
	const form = "must be amqp://user:password@host:port/vhost, special characters in them percent-encoded"
	u, err := url.Parse(text)
	if err != nil {
		return form
	}
	if seconds, err := strconv.Atoi(u.Query().Get("heartbeat")); u.Query().Has("heartbeat") &&
		(err != nil || seconds < 0 || seconds > math.MaxUint16) {
		return "must have a heartbeat of whole seconds, 0 to 65535"
	}
	parsed, err := amqp.ParseURI(text)
	if err != nil || strings.Contains(parsed.Host, ":") && net.ParseIP(parsed.Host) == nil {
		return form
	}
	if parsed.Port < 1 || parsed.Port > 65535 {
		return fmt.Sprintf("must have a port of 1 to 65535; got %d", parsed.Port)
	}
	return amqpParameters(parsed)
}

// amqpParameters checks the parameters after the question mark that a scanner can't use.
// It ignores other ones.
func amqpParameters(parsed amqp.URI) string {
	if parsed.CACertFile != "" || parsed.CertFile != "" || parsed.KeyFile != "" {
		return "must not name TLS files: they belong to rabbitmq.tls"
	}
	for _, name := range parsed.AuthMechanism {
		if !slices.Contains([]string{"plain", "amqplain", "external"}, strings.ToLower(name)) {
			return "must have an auth_mechanism of plain, amqplain or external"
		}
	}
	return ""
}
