package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// write makes raw the document of the topic that was found, or of one that was not there,
// and returns it as it is now. It is a topicdocs.ErrMeanwhile, and nothing is written, if
// somebody else wrote it since.
func write(
	cmd *cobra.Command, c topicdocs.Documents, found config.Document, topic string, raw []byte,
) (config.Document, error) {
	written, err := c.Write(cmd.Context(), topic, found, raw, authorOf(cmd))
	if err == nil {
		err = tellUnkept(cmd, topic, written)
	}
	return written.Document, err
}

// tellUnkept says on standard error that a change is not in the topic's history.
func tellUnkept(cmd *cobra.Command, topic string, done topicdocs.Committed) (err error) {
	if done.Unkept != nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: the change is not in its history: %v\n", topic, done.Unkept)
	}
	return err
}
