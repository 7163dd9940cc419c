package machine_test

import (
	"context"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// actor is one operation of a producer, one claim of a scanner, or one turn of a mover or
// steward. It is a goroutine that stops before each of its commands.
type actor struct {
	name     string
	at       string // the next command
	done     bool
	op       *operation // a producer's operation
	verdicts chan verdict
	waiting  chan string
}

type actorKey struct{}

// verdict decides the fate of an actor's next command.
type verdict int

const (
	send  verdict = iota // the command is executed.
	lose                 // it is executed, the reply is lost, and the actor sends it again.
	crash                // the actor dies before the command.
	leave                // the command is executed, and the actor dies before it receives the reply.
)

func (v verdict) String() string {
	return []string{"", "reply lost: ", "crash before ", "crash after "}[v]
}

// start runs a program up to its first command.
func start(ctx context.Context, name string, program func(ctx context.Context, a *actor)) *actor {
	a := &actor{name: name, verdicts: make(chan verdict), waiting: make(chan string)}
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
func (a *actor) proceed(v verdict) {
	if a.done {
		return
	}
	a.verdicts <- v
	a.wait()
}

// call executes one command of the actor, as often as the test decides.
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

// pause stops the actor until the test decides.
func (a *actor) pause(name string) verdict {
	a.waiting <- name
	return <-a.verdicts
}

// step is a stop of an actor without a command, such as a published message.
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
	number, _ := cmd.Args()[arg(cmd, 1)].(string)
	a.op.number = number
}
