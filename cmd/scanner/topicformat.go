package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/config"
)

// refuseOlder fails if a change adds declare.dead_letter and live scanners don't know it.
// They would refuse the document and declare the queue without the argument. RabbitMQ
// would then refuse them.
func (s *settings) refuseOlder(cmd *cobra.Command, before, after config.Document) error {
	if after.Err != nil || !hasDeadLetter(after.Topic) || before.Err == nil && hasDeadLetter(before.Topic) {
		return nil
	}
	_, old, err := s.older(cmd.Context(), config.FormatDeadLetter)
	if err != nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(),
			"topic %s: it isn't known whether all scanners support declare.dead_letter: %v\n", after.Name, err)
		return err
	}
	if len(old) > 0 {
		return fmt.Errorf("topic %s: scanners of an older version, which would refuse declare.dead_letter: %s; "+
			"nothing was written: upgrade them first", after.Name, strings.Join(old, ", "))
	}
	return nil
}

func hasDeadLetter(t config.Topic) bool { return t.Declare != nil && t.Declare.DeadLetter != "" }
