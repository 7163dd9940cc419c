// Package deploy holds deploy/ to what it promises: its files are checked by
// the tools of those who will read them, and the image's root file system is
// built and run.
package deploy
