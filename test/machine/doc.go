// Package machine holds nothing but a test: producers, scanners, movers and
// changes of the shard count on a real Redis, interleaved at every single
// command by pgregory.net/rapid, against a model of what they were promised.
//
// Every actor runs the product's own code in a goroutine that stops in front of
// each Redis command until the test lets it go on, so an interleaving is a list
// of draws: it replays and it shrinks. Time is drawn too. The scripts read their
// clock from a key in place of TIME; nothing else about them is changed, and
// leases of half a minute lapse in no time.
//
//	go test ./test/machine                                    as many checks as continuous integration runs
//	go test ./test/machine -rapid.checks=20000                more
//	go test ./test/machine -run TestPromises -rapid.seed=N    again what failed
//	go test ./test/machine -run TestPromises -rapid.failfile=testdata/rapid/...   the same, made small
//
// A failure prints the seed, the file, and the small interleaving step by step.
package machine
