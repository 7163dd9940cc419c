// Package chaos breaks things under a fleet that is at work, one named fault a
// test, and then all of them at random, and holds the promises against what the
// ledger of package fleet knows. It is built with the tag chaos, as make chaos
// does: each fault takes servers of its own, and some time.
package chaos
