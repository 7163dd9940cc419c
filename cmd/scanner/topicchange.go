package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// write stores raw as the topic's document and returns the result. Found is the document
// as read before, without an index if there was none. If somebody else has changed the
// document since, write stores nothing and fails with topicdocs.ErrMeanwhile.
func write(
	cmd *cobra.Command, c topicdocs.Documents, found config.Document, topic string, raw []byte,
) (config.Document, error) {
	written, err := c.Write(cmd.Context(), topic, found, raw, authorOf(cmd))
	if err == nil {
		err = tellUnkept(cmd, topic, written)
	}
	return written.Document, err
}

// tellUnkept prints on standard error if a change isn't in the topic's history.
func tellUnkept(cmd *cobra.Command, topic string, done topicdocs.Committed) (err error) {
	if done.Unkept != nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: the change is not in its history: %v\n", topic, done.Unkept)
	}
	return err
}
