package machine_test

import (
	"context"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// actor is one producer's operation, one scanner's claim, one mover's or one
// steward's turn: a goroutine that waits in front of each of its commands.
type actor struct {
	name     string
	at       string // the command it is about to send
	done     bool
	op       *operation // of a producer
	verdicts chan verdict
	waiting  chan string
}

type actorKey struct{}

// verdict is what becomes of the command an actor is about to send.
type verdict int

const (
	send  verdict = iota // it is carried out
	lose                 // it is carried out, the reply is lost, and it will be sent again
	crash                // the actor dies in front of it
	leave                // it is carried out, and the actor dies before it hears the reply
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

// proceed lets the actor go on up to its next command.
func (a *actor) proceed(v verdict) {
	if a.done {
		return
	}
	a.verdicts <- v
	a.wait()
}

// call carries one command of the actor out, as often as the test wants.
func (a *actor) call(name string, do func() error, again func()) error {
	for {
		switch a.pause(name) {
		case crash:
			runtime.Goexit()
		case leave:
			_ = do() // nobody hears the answer
			runtime.Goexit()
		case lose:
			_ = do() // nobody hears the answer
			if a.op != nil {
				a.op.repeated = true
			}
			again()
		default:
			return do()
		}
	}
}

// pause stops the actor until the test has decided.
func (a *actor) pause(name string) verdict {
	a.waiting <- name
	return <-a.verdicts
}

// step is a moment of an actor's that is no command: a message published.
func (a *actor) step(name string) {
	switch a.pause(name) {
	case crash, leave:
		runtime.Goexit()
	}
}

// noteOp learns the number that the records of a producer's operation bear.
func (a *actor) noteOp(name string, cmd redis.Cmder) {
	if a.op == nil || name != "put" && name != "reschedule" {
		return
	}
	number, _ := cmd.Args()[arg(cmd, 1)].(string)
	a.op.number = number
}
