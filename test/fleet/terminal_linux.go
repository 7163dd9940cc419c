package fleet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal of 80 columns: what a program writes to
// its end can be read from ours.
func openTerminal() (ours, programs *os.File, err error) {
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
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 80})
	}
	if err == nil {
		programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), ours.Close())
	}
	return ours, programs, nil
}
