// Package protocol embeds the files of docs/protocol for programs: the scripts that a
// producer in another language sends, and the transcripts of the conformance kit.
package protocol

import "embed"

// Files are the published scripts, NAME.lua, and the transcripts, conform/NAME.json.
//
//go:embed *.lua conform/*.json
var Files embed.FS
