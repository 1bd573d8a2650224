package resp

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// describeCommands are those that tell what the server is and knows.
func describeCommands() []*command {
	const group = "server"
	return []*command{
		{"COMMAND", -1, []string{loading}, false, group, "[COUNT] [LIST] [INFO name ...] [DOCS name ...]",
			"Tells about the commands.", (*session).aboutCommands},
		{"INFO", -1, []string{loading}, false, group, "[section ...]",
			"Tells about the server.", (*session).info},
		{"CONFIG", -2, []string{loading}, false, group, "GET pattern [pattern ...]",
			"Tells settings of Redis, as far as they mean something here.", (*session).config},
		{"CLUSTER", -2, []string{loading}, false, group, "subcommand",
			"Answers that this server is none of a cluster.", func(s *session, _ [][]byte) {
				s.loop.reply.fail("ERR", "This instance has cluster support disabled")
			}},
	}
}

// aboutCommands answers COMMAND [COUNT | LIST | INFO name ... | DOCS name ...].
func (s *session) aboutCommands(args [][]byte) {
	r := &s.loop.reply
	sub := "ALL"
	if len(args) > 1 {
		sub = word(args[1])
	}
	switch {
	case sub == "COUNT" && len(args) == 2:
		r.integer(int64(len(s.server.commands)))
	case sub == "LIST" && len(args) == 2:
		names := s.names(nil)
		r.array(len(names))
		for _, name := range names {
			r.text(strings.ToLower(name))
		}
	case sub == "ALL" || sub == "INFO":
		s.commandInfo(args[min(2, len(args)):])
	case sub == "DOCS":
		s.commandDocs(args[2:])
	case sub == "HELP" && len(args) == 2:
		r.texts([]string{"COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]"})
	default:
		s.unknownSubcommand(args)
	}
}

// names returns the names that were asked for, or all, in order.
func (s *session) names(asked [][]byte) []string {
	if len(asked) == 0 {
		return slices.Sorted(maps.Keys(s.server.commands))
	}
	names := make([]string, len(asked))
	for i, name := range asked {
		names[i] = word(name)
	}
	return names
}

// commandInfo answers what Redis tells about each command: its name, arity, flags, the places of its
// keys, and lists that are empty here.
func (s *session) commandInfo(asked [][]byte) {
	r := &s.loop.reply
	names := s.names(asked)
	r.array(len(names))
	for _, name := range names {
		c := s.server.commands[name]
		if c == nil {
			r.null()
			continue
		}
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
}

// commandDocs answers a map of what people are told about each command.
func (s *session) commandDocs(asked [][]byte) {
	r := &s.loop.reply
	names := slices.DeleteFunc(s.names(asked), func(name string) bool {
		return s.server.commands[name] == nil
	})
	r.mapping(len(names))
	for _, name := range names {
		c := s.server.commands[name]
		r.text(strings.ToLower(c.name))
		r.mapping(4)
		r.text("summary")
		r.text(c.summary)
		r.text("since")
		r.text(s.server.config.Version)
		r.text("group")
		r.text(c.group)
		r.text("arguments")
		r.arguments(c.syntax)
	}
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

// info answers INFO [section ...].
func (s *session) info(args [][]byte) {
	all := []struct {
		name  string
		lines []string
	}{
		{"Server", []string{
			"gatehouse_version:" + s.server.config.Version, "redis_version:" + compatible,
			"redis_mode:standalone", "os:" + runtime.GOOS, "arch:" + runtime.GOARCH,
		}},
		{"Clients", []string{
			fmt.Sprintf("connected_clients:%d", s.server.open.Load()),
			fmt.Sprintf("maxclients:%d", s.server.config.Conns),
		}},
		{"Persistence", []string{"loading:0"}},
		{"Replication", []string{"role:master", "connected_slaves:0"}},
		{"Cluster", []string{"cluster_enabled:0"}},
	}
	var text strings.Builder
	for _, section := range all {
		if !asked(args[1:], section.name) {
			continue
		}
		if text.Len() > 0 {
			text.WriteString(lineEnd)
		}
		text.WriteString("# " + section.name + lineEnd)
		for _, line := range section.lines {
			text.WriteString(line + lineEnd)
		}
	}
	s.loop.reply.plain(text.String())
}

// asked reports whether a section of INFO was asked for.
func asked(sections [][]byte, name string) bool {
	for _, section := range sections {
		switch word(section) {
		case strings.ToUpper(name), "ALL", "DEFAULT", "EVERYTHING":
			return true
		}
	}
	return len(sections) == 0
}

// config answers CONFIG GET pattern ..., which redis-benchmark asks.
func (s *session) config(args [][]byte) {
	if word(args[1]) != "GET" {
		s.unknownSubcommand(args)
		return
	}
	if len(args) < 3 {
		s.wrongArity("CONFIG|GET")
		return
	}
	settings := [][2]string{
		{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(s.server.config.Conns)},
		{"maxmemory", "0"}, {"save", ""}, {"timeout", "0"},
	}
	var found [][2]string
	for _, setting := range settings {
		if slices.ContainsFunc(args[2:], func(pattern []byte) bool {
			ok, err := path.Match(strings.ToLower(string(pattern)), setting[0])
			return ok && err == nil
		}) {
			found = append(found, setting)
		}
	}
	s.loop.reply.mapping(len(found))
	for _, setting := range found {
		s.loop.reply.text(setting[0])
		s.loop.reply.text(setting[1])
	}
}
