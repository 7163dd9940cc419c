// Package chaos injects faults into a running fleet and checks the promises with the
// ledger of package fleet. Each test injects one named fault; TestSoak mixes all faults
// at random. The package needs the build tag chaos, as in make chaos, because each fault
// takes its own servers and some time.
package chaos
