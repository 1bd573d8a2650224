package resp

import (
	"maps"
	"slices"
	"strings"
)

// A descriptions value is what is told about all commands, as it is sent: it never changes, and making it
// takes as long as 100 decisions.
type descriptions struct {
	names    []string // in order
	versions [2]described
}

// A described value is what is told in one version of the protocol.
type described struct {
	info, docs       map[*command][]byte
	allInfo, allDocs []byte
}

// in returns the descriptions in RESP3, or in RESP2.
func (d *descriptions) in(three bool) *described { return &d.versions[count(three)] }

// describe makes the descriptions of commands.
func describe(commands map[string]*command, version string) *descriptions {
	d := &descriptions{names: slices.Sorted(maps.Keys(commands))}
	for i := range d.versions {
		of := &d.versions[i]
		of.info, of.docs = make(map[*command][]byte), make(map[*command][]byte)
		info, docs := reply{three: i == 1}, reply{three: i == 1}
		info.array(len(d.names))
		docs.mapping(len(d.names))
		for _, name := range d.names {
			c := commands[name]
			one := reply{three: i == 1}
			one.info(c)
			of.info[c] = one.out
			info.out = append(info.out, one.out...)
			two := reply{three: i == 1}
			two.docs(c, version)
			of.docs[c] = two.out
			docs.out = append(docs.out, two.out...)
		}
		of.allInfo, of.allDocs = info.out, docs.out
	}
	return d
}

// info tells what Redis tells about a command: its name, arity, flags, the places of its keys, and lists
// that are empty here.
func (r *reply) info(c *command) {
	r.array(10)
	r.text(strings.ToLower(c.name))
	r.integer(int64(c.arity))
	r.array(len(c.flags))
	for _, flag := range c.flags {
		r.simple(flag)
	}
	key := int64(count(c.keyed))
	r.integer(key) // the first key, the last one, and the step between two
	r.integer(key)
	r.integer(key)
	for range 4 { // categories, hints, the places of keys in words, subcommands
		r.array(0)
	}
}

// docs tells people about a command: its name and a map.
func (r *reply) docs(c *command, version string) {
	r.text(strings.ToLower(c.name))
	r.mapping(4)
	r.text("summary")
	r.text(c.summary)
	r.text("since")
	r.text(version)
	r.text("group")
	r.text(c.group)
	r.text("arguments")
	r.arguments(c.syntax)
}

// arguments tells a syntax as COMMAND DOCS does, so that redis-cli can show it as one types.
func (r *reply) arguments(syntax string) {
	words := parts(syntax)
	r.array(len(words))
	for _, word := range words {
		name, optional := strings.CutPrefix(word, "[")
		name = strings.TrimSuffix(name, "]")
		r.mapping(3 + count(optional))
		r.text("name")
		r.text(name)
		r.text("display_text")
		r.text(name)
		r.text("type")
		r.text("string")
		if optional {
			r.text("flags")
			r.array(1)
			r.simple("optional")
		}
	}
}

// parts cuts a syntax where there is a space outside of brackets.
func parts(syntax string) (words []string) {
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
