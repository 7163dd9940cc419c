package fleet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal with the given columns and rows. The program gets
// the end programs, and the test reads its output from ours.
func openTerminal(columns, rows int) (ours, programs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	fd := int(ours.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		size := unix.Winsize{Row: uint16(rows), Col: uint16(columns)} //nolint:gosec // terminals are small
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size)
	}
	if err == nil {
		programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), ours.Close())
	}
	return ours, programs, nil
}
