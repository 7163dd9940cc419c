package duefleettest

import (
	"fmt"
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// TestTheBridge: scripts find what Redis has, in the same form.
func TestTheBridge(t *testing.T) {
	t.Parallel()
	m, err := newMemory()
	check.OK(t, err)
	defer m.close()
	for code, want := range map[string]string{
		`return {struct.unpack('>BI6I6c6', '\25\1\2\3\4\5\6\0\0\0\0\0\7abcdef...')}`:                                       "[25 1108152157446 7 abcdef 20]",
		`return {struct.unpack('>I2c0', 'x\0\3abcdef', 2)}`:                                                                "[abc 7]",
		`return struct.pack('>BI6I2c0', 16, 1108152157446, 3, 'abc') == '\16\1\2\3\4\5\6\0\3abc'`:                          "1",
		`return {pcall(struct.unpack, '>I6', 'abc')}`:                                                                      "[<nil> struct: data string too short]",
		`return {pcall(struct.pack, '>d', 1)}`:                                                                             "[<nil> struct: no format d]",
		`return {tostring(tonumber('+inf')), tostring(tonumber('-inf')), tostring(tonumber('+Inf'))}`:                      "[+Inf -Inf +Inf]",
		`return {tonumber('1e3'), tonumber('-15E-1') * 10, tonumber(' 12 '), tonumber('0x10'), tonumber('ff', 16)}`:        "[1000 -15 12 16 255]",
		`return {tonumber('e3') == nil, tonumber('x') == nil, tonumber('') == nil, tonumber(nil) == nil}`:                  "[1 1 1 1]",
		`return {string.byte('abc'), string.byte('abc', 2), string.byte('abc', -1), string.byte(string.rep('x', 100000))}`: "[97 98 99 120]",
		`return redis.call('SPUBLISH', 'c', 'm')`:                                                                          "0",
		`return redis.acl_check_cmd('GET', 'k')`:                                                                           "1",
		`error({err = 'ARGUMENT no'})`:                                                                                     "ERR Error compiling script (new function): ARGUMENT no",
		`redis.call('ZADD', 'z', '-inf', 'a', 1, 'b', '+inf', 'c')
		 return {redis.call('ZCOUNT', 'z', '(-inf', '(+inf'), redis.call('ZCOUNT', 'z', '-inf', '(+Inf'), redis.call('ZCOUNT', 'z', '(-inf', '+inf')}`: "[1 2 2]",
	} {
		value, err := m.client.Eval(t.Context(), "#!lua flags=allow-oom\n"+code, nil).Result()
		got := fmt.Sprint(value)
		if err != nil {
			got = fmt.Sprintf("%.54s", err.Error())
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", code, got, want)
		}
	}
}
