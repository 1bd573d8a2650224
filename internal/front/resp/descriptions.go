package resp

import (
	"maps"
	"slices"
	"strings"
)

// A commandDescriptions value holds the answers of COMMAND as they are sent. They never change, and making
// them takes as long as 100 decisions.
type commandDescriptions struct {
	names    []string // in order
	versions [2]protocolDescriptions
}

// A protocolDescriptions value is a description in one version of the protocol.
type protocolDescriptions struct {
	info, docs       map[*command][]byte
	allInfo, allDocs []byte
}

// forProtocol returns the descriptions in RESP3, or in RESP2.
func (d *commandDescriptions) forProtocol(three bool) *protocolDescriptions {
	return &d.versions[boolToInt(three)]
}

// newDescriptions makes the descriptions of commands.
func newDescriptions(commands map[string]*command, version string) *commandDescriptions {
	d := &commandDescriptions{names: slices.Sorted(maps.Keys(commands))}
	for i := range d.versions {
		// 0 is RESP2 and 1 is RESP3, as forProtocol has it.
		of := &d.versions[i]
		of.info, of.docs = make(map[*command][]byte), make(map[*command][]byte)
		info, docs := replyWriter{three: i == 1}, replyWriter{three: i == 1}
		info.writeArray(len(d.names))
		docs.writeMap(len(d.names))
		for _, name := range d.names {
			// Each description is written alone and then copied into the list of all: the bytes are the
			// same, and made once.
			c := commands[name]
			one := replyWriter{three: i == 1}
			one.writeCommandInfo(c)
			of.info[c] = one.out
			info.out = append(info.out, one.out...)
			two := replyWriter{three: i == 1}
			two.writeCommandDocs(c, version)
			of.docs[c] = two.out
			docs.out = append(docs.out, two.out...)
		}
		of.allInfo, of.allDocs = info.out, docs.out
	}
	return d
}

// writeCommandInfo writes what Redis says about a command: its name, arity, flags, the positions of its keys,
// and lists that are empty here.
func (r *replyWriter) writeCommandInfo(c *command) {
	r.writeArray(10)
	r.writeText(strings.ToLower(c.name))
	r.writeInteger(int64(c.arity))
	r.writeArray(len(c.flags))
	for _, flag := range c.flags {
		r.writeSimple(flag)
	}
	key := int64(boolToInt(c.keyed))
	r.writeInteger(key) // the first key, the last one, and the step between two
	r.writeInteger(key)
	r.writeInteger(key)
	for range 4 { // categories, hints, the places of keys in words, subcommands
		r.writeArray(0)
	}
}

// writeCommandDocs tells people about a command: its name and a map.
func (r *replyWriter) writeCommandDocs(c *command, version string) {
	r.writeText(strings.ToLower(c.name))
	r.writeMap(4)
	r.writeText("summary")
	r.writeText(c.summary)
	r.writeText("since")
	r.writeText(version)
	r.writeText("group")
	r.writeText(c.group)
	r.writeText("arguments")
	r.writeArguments(c.syntax)
}

// writeArguments tells a syntax as COMMAND DOCS does, so that redis-cli can show it as one types.
func (r *replyWriter) writeArguments(syntax string) {
	words := splitSyntax(syntax)
	r.writeArray(len(words))
	for _, word := range words {
		name, optional := strings.CutPrefix(word, "[")
		name = strings.TrimSuffix(name, "]")
		r.writeMap(3 + boolToInt(optional))
		r.writeText("name")
		r.writeText(name)
		r.writeText("display_text")
		r.writeText(name)
		r.writeText("type")
		r.writeText("string")
		if optional {
			r.writeText("flags")
			r.writeArray(1)
			r.writeSimple("optional")
		}
	}
}

// splitSyntax cuts a syntax where there is a space outside of brackets.
func splitSyntax(syntax string) (words []string) {
	for syntax != "" {
		end := strings.IndexByte(syntax, ' ')
		if syntax[0] == '[' {
			end = strings.IndexByte(syntax, ']') + 1
		}
		if end < 0 || end >= len(syntax) {
			return append(words, syntax)
		}
		words, syntax = append(words, syntax[:end]), syntax[end+1:]
	}
	return words
}
