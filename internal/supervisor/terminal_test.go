//go:build linux

package supervisor

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

// The command reads from the terminal, gets the signals of its keys, and leaves it to the wrapper's group.
func TestCommandKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	person, program := servertest.OpenTerminal(t)
	const command = `trap 'echo interrupted' INT; echo ready
		read line; echo "got $line"; read line; echo end`
	w := exec.Command(os.Args[0], "60000", "90000", "sh", "-c", command)
	w.Env = append(os.Environ(), role+"=wrapper")
	w.Stdin, w.Stdout, w.Stderr = program, program, program
	w.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Process.Kill() })
	_ = program.Close()

	screen := bufio.NewScanner(person)
	expect := func(want string) {
		t.Helper()
		seen := ""
		for screen.Scan() {
			seen += screen.Text() + "\n"
			if strings.Contains(screen.Text(), want) {
				return
			}
		}
		t.Fatalf("the terminal shows\n%s and never %q", seen, want)
	}
	expect("ready")
	_, _ = person.WriteString("a line\n")
	expect("got a line")
	_, _ = person.WriteString("\x03") // ^C goes to the command alone: the wrapper would die of it
	// A shell that is just about to read runs its trap only when it has read.
	_, _ = person.WriteString("more\n")
	expect("interrupted")
	expect("end")
	expect("exit 0 overdue false")
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
}
