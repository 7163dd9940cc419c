package problem

import "strings"

// Unsafe returns the problem that Redis may lose what it acknowledged; why are the reasons.
func Unsafe(why []string) Problem {
	return New(RedisUnsafe, "", "redis is set to lose tasks that it acknowledged: "+strings.Join(why, "; "))
}

// Away returns the problem that the source of topics can't be read. kind is ConsulAway or
// SourceAway.
func Away(kind Kind, why string) Problem {
	return New(kind, "", "the source of topics can't be read, the last good settings stay in force: "+why)
}
