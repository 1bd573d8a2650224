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
		names := s.server.described.names
		r.writeArray(len(names))
		for _, name := range names {
			r.writeText(strings.ToLower(name))
		}
	// COMMAND alone has a single argument, so there may be no names to cut off.
	case sub == "ALL" || sub == "INFO":
		s.commandInfo(args[min(2, len(args)):])
	case sub == "DOCS":
		s.commandDocs(args[2:])
	case sub == "HELP" && len(args) == 2:
		r.writeTexts([]string{"COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]"})
	default:
		s.unknownSubcommand(args)
	}
}

// commandInfo answers what Redis tells about each command.
func (s *session) commandInfo(asked [][]byte) {
	r, known := &s.loop.reply, s.server.described.forProtocol(s.three)
	if len(asked) == 0 {
		r.out = append(r.out, known.allInfo...)
		return
	}
	r.writeArray(len(asked))
	for _, name := range asked {
		c := findCommand(s.server.commands, name)
		if c == nil {
			r.writeNull()
			continue
		}
		r.out = append(r.out, known.info[c]...)
	}
}

// commandDocs answers a map of the descriptions of each command.
func (s *session) commandDocs(asked [][]byte) {
	r, known := &s.loop.reply, s.server.described.forProtocol(s.three)
	if len(asked) == 0 {
		r.out = append(r.out, known.allDocs...)
		return
	}
	found := make([]*command, 0, len(asked))
	for _, name := range asked {
		if c := findCommand(s.server.commands, name); c != nil {
			found = append(found, c)
		}
	}
	r.writeMap(len(found))
	for _, c := range found {
		r.out = append(r.out, known.docs[c]...)
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
		s.loop.reply.writeText(setting[0])
		s.loop.reply.writeText(setting[1])
	}
}
