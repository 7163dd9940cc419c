// Package machine holds only a test: producers, scanners, movers and changes of the shard
// count run on a real Redis. The library pgregory.net/rapid interleaves them at every
// single command, and a model checks the promises.
//
// Every actor runs the product's own code in a goroutine, which stops before each Redis
// command until the test lets it continue. So an interleaving is a list of draws, which
// rapid can replay and shrink. Time is drawn too: the scripts read their clock from a key
// instead of TIME. A lease of half a minute then expires in no time. The scripts are
// otherwise unchanged.
//
//	go test ./test/machine                                    as many checks as continuous integration runs
//	go test ./test/machine -rapid.checks=20000                more
//	go test ./test/machine -run TestPromises -rapid.seed=N    repeat a failure
//	go test ./test/machine -run TestPromises -rapid.failfile=testdata/rapid/...   repeat it, shrunk
//
// A failure prints the seed, the file, and the shrunk interleaving step by step.
package machine
