// Package deploy tests the files in deploy/. It checks them with the tools that read
// them, and builds the image's root file system and runs a scanner in it.
package deploy
