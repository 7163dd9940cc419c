package machine_test

import (
	"context"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// actor is one operation of a producer, one claim of a scanner, or one turn of a mover or
// reconciler. It is a goroutine that stops before each of its commands.
type actor struct {
	name     string
	at       string // the next command
	done     bool
	op       *operation // a producer's operation
	outcomes chan outcome
	waiting  chan string
}

type actorKey struct{}

// outcome names the effect that the test chooses for an actor's next command.
type outcome int

const (
	send  outcome = iota // the command is executed.
	lose                 // it is executed, the reply is lost, and the actor sends it again.
	crash                // the actor dies before the command.
	leave                // the command is executed, and the actor dies before it receives the reply.
)

func (v outcome) String() string {
	return []string{"", "reply lost: ", "crash before ", "crash after "}[v]
}

// start runs a program up to its first command.
func start(ctx context.Context, name string, program func(ctx context.Context, a *actor)) *actor {
	a := &actor{name: name, outcomes: make(chan outcome), waiting: make(chan string)}
	go func() {
		defer close(a.waiting)
		program(context.WithValue(ctx, actorKey{}, a), a)
	}()
	a.wait()
	return a
}

func (a *actor) wait() {
	at, open := <-a.waiting
	a.at, a.done = at, !open
}

// proceed lets the actor run up to its next command.
func (a *actor) proceed(v outcome) {
	if a.done {
		return
	}
	a.outcomes <- v
	a.wait()
}

// call executes one command of the actor, again after each reply that the test loses.
func (a *actor) call(name string, do func() error, again func()) error {
	for {
		switch a.pause(name) {
		case crash:
			runtime.Goexit()
		case leave:
			_ = do() // the reply is lost
			runtime.Goexit()
		case lose:
			_ = do() // the reply is lost
			if a.op != nil {
				a.op.repeated = true
			}
			again()
		default:
			return do()
		}
	}
}

// pause stops the actor in front of a command until the test decides its outcome.
func (a *actor) pause(name string) outcome {
	a.waiting <- name
	return <-a.outcomes
}

// step stops the actor at an event that is no Redis command, such as a published message.
func (a *actor) step(name string) {
	switch a.pause(name) {
	case crash, leave:
		runtime.Goexit()
	}
}

// noteOp records the op number in the records of a producer's operation.
func (a *actor) noteOp(name string, cmd redis.Cmder) {
	if a.op == nil || name != "put" && name != "reschedule" {
		return
	}
	at := map[string]int{"put": 1, "reschedule": 5}[name]
	number, _ := cmd.Args()[arg(cmd, at)].(string)
	a.op.number = number
}
