package script

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Stage says with what the two ends are run.
type Stage struct {
	Player   string                      // path of the built ccode/player.c
	PlayerOf map[End]string              // for one end another one
	Env      []string                    // added to the environment of both ends, e.g. LD_PRELOAD
	EnvOf    map[End][]string            // added for one end
	Patience time.Duration               // for one step, before it is said to hang; 0 is 10 s
	As       map[End]*syscall.Credential // for one end another user; needs root
	Unshare  uintptr                     // CLONE_NEW...: each end is in new namespaces, as in a container
	// Before is called with the process ids of both ends when all steps are
	// played and the ends still live, to look at them from outside.
	Before func(pids map[End]int)
	Each   func(Step) // called before each step
}

// hung ends a log: what follows a hanging step is not played.
const hung = "HUNG"

// Play makes the calls of a script. The error is for a play that could not be
// made; whatever the sockets do is in the log.
func Play(stage Stage, s Script) (Log, error) {
	if stage.Patience == 0 {
		stage.Patience = 10 * time.Second
	}
	p := &play{stage: stage, ends: make(map[End]*end), variables: make(map[string]string)}
	defer p.stop()
	for _, name := range []End{A, B} {
		if err := p.start(name); err != nil {
			return nil, fmt.Errorf("cannot start end %c: %w", name, err)
		}
	}
	var log Log
	for i, step := range s.Steps {
		if stage.Each != nil {
			stage.Each(step)
		}
		outcome, err := p.step(i+1, step)
		if err != nil {
			return log, fmt.Errorf("step %d, %s: %w", i+1, step, err)
		}
		log = append(log, Entry{step.String(), outcome})
		if outcome == hung {
			return log, nil
		}
	}
	if stage.Before != nil {
		pids := make(map[End]int)
		for name, e := range p.ends {
			pids[name] = e.pid
		}
		stage.Before(pids)
	}
	for _, name := range []End{A, B} {
		log = append(log, Entry{fmt.Sprintf("%c leaves", name), p.leave(name)})
	}
	return log, nil
}

type play struct {
	stage     Stage
	ends      map[End]*end
	variables map[string]string
}

// An end is a player and the two pipes to it.
type end struct {
	cmd     *exec.Cmd // nil for a child of a player
	pid     int
	orders  *os.File
	answers *bufio.Reader
	pipe    *os.File    // what answers reads
	threads map[int]int // number in the script → thread id
	gone    bool
}

// start runs one player, with the pipes of the child that it may fork.
func (p *play) start(name End) error {
	var files [8]*os.File // read and write end: orders, answers, child's orders, child's answers
	for i := 0; i < len(files); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		files[i], files[i+1] = r, w
	}
	player := p.stage.Player
	if other, ok := p.stage.PlayerOf[name]; ok {
		player = other
	}
	cmd := exec.Command(player)
	cmd.Env = append(append(os.Environ(), p.stage.Env...), p.stage.EnvOf[name]...)
	cmd.Stdin, cmd.Stdout = files[0], files[3]
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: p.stage.Unshare, Credential: p.stage.As[name]}
	if p.stage.Unshare&syscall.CLONE_NEWUSER != 0 {
		other := []syscall.SysProcIDMap{{HostID: 1, ContainerID: 0, Size: 1}} // root is not mapped, and looks like nobody
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = other, other
	}
	cmd.ExtraFiles = []*os.File{files[4], files[7]}
	err := cmd.Start()
	for _, i := range []int{0, 3, 4, 7} {
		files[i].Close()
	}
	child := name - 'a' + 'A'
	p.ends[name] = &end{cmd: cmd, orders: files[1], answers: bufio.NewReader(files[2]), pipe: files[2], threads: make(map[int]int)}
	p.ends[child] = &end{orders: files[5], answers: bufio.NewReader(files[6]), pipe: files[6], threads: make(map[int]int)}
	if err != nil {
		return err
	}
	p.ends[name].pid = cmd.Process.Pid
	return nil
}

// stop ends what still runs and closes the pipes.
func (p *play) stop() {
	for _, name := range []End{ChildA, ChildB, A, B} {
		e := p.ends[name]
		if e == nil {
			continue
		}
		e.orders.Close()
		if e.pid != 0 && !e.gone { // so its parent has not reaped it, and the number is still its own
			syscall.Kill(e.pid, syscall.SIGKILL)
			if e.cmd != nil {
				e.cmd.Wait()
			}
		}
		e.pipe.Close()
	}
}

func (p *play) step(id int, s Step) (string, error) {
	e := p.ends[s.End]
	if e.pid == 0 {
		return "no such end", nil
	}
	switch s.Words[0] {
	case "kill9":
		return p.kill(s.End), nil
	case "stop", "cont":
		sig, state := syscall.SIGSTOP, "T"
		if s.Words[0] == "cont" {
			sig, state = syscall.SIGCONT, "RSD"
		}
		if err := syscall.Kill(e.pid, sig); err != nil {
			return "gone", nil
		}
		for begin := time.Now(); !strings.Contains(state, threadState(e.pid, e.pid)); time.Sleep(time.Millisecond) {
			if time.Since(begin) > p.stage.Patience {
				return hung, nil
			}
		}
		return "ok", nil
	case "blocked":
		n, err := strconv.Atoi(s.Words[1])
		if err != nil {
			return "", err
		}
		return p.blocked(e, e.threads[n]), nil
	}

	words := make([]string, len(s.Words))
	for i, w := range s.Words {
		if name, ok := strings.CutPrefix(w, "$"); ok {
			if w, ok = p.variables[name]; !ok {
				return "no " + name, nil
			}
		}
		words[i] = w
	}
	thread := ""
	if s.Thread != 0 {
		thread = "&" + strconv.Itoa(s.Thread)
	}
	line, err := p.ask(e, fmt.Sprintf("%d%s %s\n", id, thread, strings.Join(words, " ")))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return hung, nil
	}
	if err != nil {
		return p.died(s.End), nil
	}
	outcome, note, _ := strings.Cut(line, " | ")
	if s.Words[0] == "reap" {
		p.ends[s.End-'a'+'A'].gone = true
	}
	for _, pair := range strings.Fields(note) {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "pid":
			p.ends[s.End-'a'+'A'].pid, err = strconv.Atoi(value)
		case "tid":
			e.threads[s.Thread], err = strconv.Atoi(value)
		case "ms":
			var ms int
			ms, err = strconv.Atoi(value)
			// The kernel's clock for sockets ticks every 1 to 10 ms.
			if took := time.Duration(ms) * time.Millisecond; took < s.AtLeast-10*time.Millisecond {
				outcome += fmt.Sprintf(" EARLY after %v", took)
			}
		default:
			p.variables[name] = value
		}
		if err != nil {
			return "", fmt.Errorf("note %q: %w", note, err)
		}
	}
	return outcome, nil
}

func (p *play) ask(e *end, line string) (string, error) {
	if _, err := io.WriteString(e.orders, line); err != nil {
		return "", err
	}
	if err := e.pipe.SetReadDeadline(time.Now().Add(p.stage.Patience)); err != nil {
		return "", err
	}
	answer, err := e.answers.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// kill ends a player at once and waits until its descriptors are closed. A
// child has to be reaped by its parent before the next step relies on that.
func (p *play) kill(name End) string {
	e := p.ends[name]
	if err := syscall.Kill(e.pid, syscall.SIGKILL); err != nil {
		return "gone"
	}
	e.gone = true
	if e.cmd != nil {
		e.cmd.Wait()
	}
	time.Sleep(time.Millisecond) // who was just told of bytes may see the end so much later (docs/options.md)
	return "killed"
}

// died says how a player ended that does not answer any more.
func (p *play) died(name End) string {
	e := p.ends[name]
	if e.gone {
		return "gone"
	}
	e.gone = true
	if e.cmd == nil {
		return "died"
	}
	e.cmd.Wait()
	return "died: " + e.cmd.ProcessState.String()
}

// leave lets a player and then its child end by themselves.
func (p *play) leave(name End) string {
	child := p.ends[name-'a'+'A']
	child.orders.Close()
	child.gone = true
	e := p.ends[name]
	if e.gone {
		return "gone"
	}
	e.orders.Close()
	syscall.Kill(e.pid, syscall.SIGCONT)
	done := make(chan struct{})
	go func() {
		e.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
		e.gone = true
		return e.cmd.ProcessState.String()
	case <-time.After(p.stage.Patience):
		syscall.Kill(e.pid, syscall.SIGKILL)
		<-done
		e.gone = true
		return hung
	}
}

// blocked waits until a thread sleeps, which must last for some looks: locks
// and page faults are sleeps too, but short. A thread that has ended sleeps for
// good.
func (p *play) blocked(e *end, tid int) string {
	const looks, apart = 6, 500 * time.Microsecond
	for begin, seen := time.Now(), 0; seen < looks; time.Sleep(apart) {
		switch threadState(e.pid, tid) {
		case "S":
			seen++
		case "", "Z", "X":
			return "finished"
		default:
			seen = 0
		}
		if time.Since(begin) > p.stage.Patience {
			return "never sleeps"
		}
	}
	return "asleep"
}

// threadState is the letter that the kernel has for the state of a thread, ""
// when there is none.
func threadState(pid, tid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold blanks
	state, _, _ := strings.Cut(rest, " ")
	return state
}
