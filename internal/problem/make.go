package problem

import "strings"

// Unsafe returns the problem that Redis may lose what it acknowledged; why are the reasons.
func Unsafe(why []string) Problem {
	return New(RedisUnsafe, "", "redis is set to lose tasks that it acknowledged: "+strings.Join(why, "; "))
}

// OtherData returns the problem that Redis doesn't have the data of the fleet. found is the
// identity of the data that is there; "" if it has none.
func OtherData(expected, found string) Problem {
	there := "the data that is there has no identity"
	if found != "" {
		there = "the data that is there is " + found
	}
	p := New(DataLost, "", "redis lost the data of the fleet: "+expected+" is expected, and "+there)
	p.Facts = map[string]string{"expected": expected, "found": found}
	return p
}

// Away returns the problem that the source of topics can't be read. kind is ConsulAway or
// SourceAway.
func Away(kind Kind, why string) Problem {
	return New(kind, "", "the source of topics can't be read, the last good settings stay in force: "+why)
}
