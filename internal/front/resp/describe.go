package resp

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// serverCommands are those that tell what the server is and knows.
func serverCommands() []*command {
	const group = "server"
	return []*command{
		{"COMMAND", -1, []string{loading}, false, group, "[COUNT] [LIST] [INFO name ...] [DOCS name ...]",
			"Tells about the commands.", (*session).answerCommand},
		{"INFO", -1, []string{loading}, false, group, "[section ...]",
			"Tells about the server.", (*session).answerInfo},
		{"CONFIG", -2, []string{loading}, false, group, "GET pattern [pattern ...]",
			"Tells settings of Redis, as far as they mean something here.", (*session).answerConfig},
		{"CLUSTER", -2, []string{loading}, false, group, "subcommand",
			"Answers that this server is none of a cluster.", func(s *session, _ [][]byte) {
				s.loop.reply.writeError("ERR", "This instance has cluster support disabled")
			}},
	}
}

// answerCommand answers COMMAND [COUNT | LIST | INFO name ... | DOCS name ...].
func (s *session) answerCommand(args [][]byte) {
	r := &s.loop.reply
	// COMMAND alone describes all commands, as COMMAND INFO without names does.
	sub := "ALL"
	if len(args) > 1 {
		sub = upperWord(args[1])
	}
	switch {
	case sub == "COUNT" && len(args) == 2:
		r.writeInteger(int64(len(s.server.commands)))
	case sub == "LIST" && len(args) == 2:
		r.writeArray(len(s.server.listed))
		for _, c := range s.server.listed {
			r.writeText(strings.ToLower(c.name))
		}
	// COMMAND alone has a single argument, so there may be no names to cut off.
	case sub == "ALL" || sub == "INFO":
		s.commandInfo(s.askedCommands(args[min(2, len(args)):]))
	case sub == "DOCS":
		s.commandDocs(s.askedCommands(args[2:]))
	default:
		s.unknownSubcommand(args)
	}
}

// askedCommands returns the commands with these names, nil for a name that there is none of, and all commands
// without names.
func (s *session) askedCommands(names [][]byte) []*command {
	if len(names) == 0 {
		return s.server.listed
	}
	asked := make([]*command, len(names))
	for i, name := range names {
		asked[i] = findCommand(s.server.commands, name)
	}
	return asked
}

// commandInfo answers what Redis tells about each command.
func (s *session) commandInfo(asked []*command) {
	r := &s.loop.reply
	r.writeArray(len(asked))
	for _, c := range asked {
		if c == nil {
			r.writeNull()
		} else {
			r.out = append(r.out, s.server.described[c].info[boolToInt(s.three)]...)
		}
	}
}

// commandDocs answers a map of the descriptions of each command that there is.
func (s *session) commandDocs(asked []*command) {
	r := &s.loop.reply
	n := 0
	for _, c := range asked {
		n += boolToInt(c != nil)
	}
	// As in Redis, names without a command are left out here, while COMMAND INFO has a null for them.
	r.writeMap(n)
	for _, c := range asked {
		if c != nil {
			r.out = append(r.out, s.server.described[c].docs[boolToInt(s.three)]...)
		}
	}
}

// answerInfo answers INFO [section ...].
func (s *session) answerInfo(args [][]byte) {
	// redis_version is what clients look at to know which commands they may send; our own is beside it.
	// There is nothing to load, and no replica or cluster, and the answers say so.
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
		if !wantsSection(args[1:], section.name) {
			continue
		}
		// A blank line separates sections, as in Redis.
		if text.Len() > 0 {
			text.WriteString(lineEnd)
		}
		text.WriteString("# " + section.name + lineEnd)
		for _, line := range section.lines {
			text.WriteString(line + lineEnd)
		}
	}
	s.loop.reply.writeVerbatim(text.String())
}

// wantsSection reports whether a section of INFO was asked for.
func wantsSection(sections [][]byte, name string) bool {
	for _, section := range sections {
		switch upperWord(section) {
		case strings.ToUpper(name), "ALL", "DEFAULT", "EVERYTHING":
			return true
		}
	}
	return len(sections) == 0
}

// answerConfig answers CONFIG GET pattern ..., which redis-benchmark asks.
func (s *session) answerConfig(args [][]byte) {
	if upperWord(args[1]) != "GET" {
		s.unknownSubcommand(args)
		return
	}
	if len(args) < 3 {
		s.wrongArity("CONFIG|GET")
		return
	}
	// redis-benchmark reads save and appendonly before it begins.
	settings := [][2]string{
		{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(s.server.config.Conns)},
		{"maxmemory", "0"}, {"save", ""}, {"timeout", "0"},
	}
	var found [][2]string
	// Settings are the outer loop: one that matches several patterns is listed once.
	for _, setting := range settings {
		if slices.ContainsFunc(args[2:], func(pattern []byte) bool {
			// A malformed pattern matches nothing, which is no error in Redis either.
			ok, err := path.Match(strings.ToLower(string(pattern)), setting[0])
			return ok && err == nil
		}) {
			found = append(found, setting)
		}
	}
	s.loop.reply.writeMap(len(found))
	for _, setting := range found {
		s.loop.reply.writeTexts(setting[:]...)
	}
}

// A commandDescription is what COMMAND answers about a command, as it is sent: in RESP2 and in RESP3. It
// never changes, and making those of all commands takes as long as 100 decisions.
type commandDescription struct{ info, docs [2][]byte }

// describeCommands returns the descriptions of commands.
func describeCommands(commands map[string]*command, version string) map[*command]commandDescription {
	all := make(map[*command]commandDescription, len(commands))
	for _, c := range commands {
		var d commandDescription
		for i := range d.info {
			// Once for RESP2 and once for RESP3: maps are written differently.
			info, docs := replyWriter{three: i == 1}, replyWriter{three: i == 1}
			info.writeCommandInfo(c)
			docs.writeCommandDocs(c, version)
			d.info[i], d.docs[i] = info.out, docs.out
		}
		all[c] = d
	}
	return all
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
	r.writeIntegers(key, key, key) // the first key, the last one, and the step between two
	for range 4 {                  // categories, hints, the places of keys in words, subcommands
		r.writeArray(0)
	}
}

// writeCommandDocs tells people about a command: its name and a map.
func (r *replyWriter) writeCommandDocs(c *command, version string) {
	r.writeText(strings.ToLower(c.name))
	r.writeMap(4)
	r.writeTexts("summary", c.summary, "since", version, "group", c.group, "arguments")
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
		r.writeTexts("name", name, "display_text", name, "type", "string")
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
			// What is in brackets is one argument, although it may have spaces.
			end = strings.IndexByte(syntax, ']') + 1
		}
		if end < 0 || end >= len(syntax) {
			return append(words, syntax)
		}
		words, syntax = append(words, syntax[:end]), syntax[end+1:]
	}
	return words
}
