package conform

import (
	"slices"
	"strconv"
	"strings"
)

// mostAhead is the furthest that a not_after may be in the future, in ms: about 3,000,
// and some for differing clocks.
const mostAhead = 10_000

// okReply is the proxy's reply to commands that it handles itself.
const okReply = "+OK\r\n"

// admit lets a command pass, or answers it itself. It returns the command's name in
// faults, or "".
func (p *proxy) admit(e *exchange, args []string) (name string) {
	verb := strings.ToUpper(args[0])
	switch verb {
	case "AUTH", "SELECT": // the proxy's connection to Redis has already done it
		e.canned = []byte(okReply)
		return ""
	case "HELLO":
		e.raw = command(args[:min(2, len(args))]...)
		return ""
	case "TIME":
		return "time"
	case "PING", "ECHO", "CLIENT", "COMMAND", "INFO", "WAIT", "QUIT":
		return ""
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		return p.admitScript(e, verb, args)
	case "SCRIPT":
		p.admitLoad(e, args)
		return ""
	case "GET", "HGET", "HMGET", "HGETALL", "EXISTS":
		return p.admitRead(e, args)
	case "SMEMBERS":
		if len(args) == 2 && args[1] == p.sandbox.prefix+":topics" {
			return "" // for the error of an unknown topic
		}
	case "HSET":
		if len(args) == 4 && args[2] == "waited" && strings.HasPrefix(args[1], p.sandbox.prefix+":fence:{") {
			return ""
		}
	}
	p.refuse(e, "the program sent %.100q, which docs/protocol.md doesn't have", args)
	return ""
}

// admitRead lets the program read its placement, and other keys only under its prefix.
func (p *proxy) admitRead(e *exchange, args []string) string {
	if len(args) < 2 || !strings.HasPrefix(args[1], p.sandbox.prefix+":") {
		p.refuse(e, "the program sent %.200q, which is not under the prefix in DUEFLEET_REDIS_PREFIX, %s", args,
			p.sandbox.prefix)
		return ""
	}
	if args[1] == p.sandbox.placement() {
		return "placement"
	}
	return ""
}

func (p *proxy) admitLoad(e *exchange, args []string) {
	if len(args) > 2 && strings.EqualFold(args[1], "LOAD") {
		s, known := p.scripts[hash(args[2])]
		if known {
			p.unloaded(s.name, true)
		} else {
			p.refuse(e, "the program sent a script that is none of docs/protocol, byte for byte: %.60q", args[2])
		}
		return
	}
	if len(args) < 2 || !strings.EqualFold(args[1], "EXISTS") {
		p.refuse(e, "the program sent %.100q, which docs/protocol.md doesn't have", args)
	}
}

// admitScript records a published script in e.sent, and refuses others.
func (p *proxy) admitScript(e *exchange, verb string, args []string) string {
	if len(args) < 3 {
		p.refuse(e, "the program sent %.100q, with too few arguments", args)
		return ""
	}
	sha, byText := args[1], !strings.HasPrefix(verb, "EVALSHA")
	if byText {
		sha = hash(sha)
	}
	s, known := p.scripts[strings.ToLower(sha)]
	switch {
	case !known && byText:
		p.refuse(e, "the program sent a script that is none of docs/protocol, byte for byte: %.60q", args[1])
		return ""
	case !known || p.unloaded(s.name, byText):
		e.canned = []byte("-NOSCRIPT No matching script. Please use EVAL.\r\n")
		return ""
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 || n > len(args)-3 {
		p.refuse(e, "the program sent %s with %.20q for the number of keys", s.name, args[2])
		return ""
	}
	it := &sent{script: s, keys: args[3 : 3+n], args: args[3+n:], shard: -1, done: make(chan struct{})}
	if !p.admitKeys(e, it) {
		return ""
	}
	e.sent = it
	return s.name
}

// unloaded reports whether Redis must not know a script in this transcript. That ends
// once the program has sent the script's text.
func (p *proxy) unloaded(name string, byText bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.faults, func(f *Fault) bool { return f.Then == Unloaded && f.At == name })
	if at < 0 {
		return false
	}
	if byText {
		p.faults = slices.Delete(p.faults, at, at+1)
	}
	return !byText
}

// admitKeys checks that a script's keys belong to one shard, or to one ID, of the
// transcript's topic, in the script's order.
func (p *proxy) admitKeys(e *exchange, s *sent) bool {
	where := place(s.keys[0])
	rest, ours := strings.CutPrefix(where, p.sandbox.topic+":")
	if want := keysOf(s.script, p.sandbox.prefix, where); !ours || !slices.Equal(s.keys, want) {
		p.refuse(e, "the program sent %s with the keys %.300q; want %q of a shard, or of an ID, of the topic %s, each as "+
			"%s:<kind>:{%s:<shard>}",
			s.name, s.keys, s.script.keys, p.sandbox.topic, p.sandbox.prefix, p.sandbox.topic)
		return false
	}
	p.sandbox.touch(s.keys...)
	if s.script.keys[0] != "past" {
		n, err := strconv.Atoi(rest)
		if err != nil || strconv.Itoa(n) != rest || n < 0 {
			p.refuse(e, "the program sent %s to the shard %.40q, which is not a number", s.name, rest)
			return false
		}
		s.shard = n
	}
	return true
}
