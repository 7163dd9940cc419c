//go:build !linux

package fleet

import "syscall"

// childAttr puts a child into a group of its own.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
