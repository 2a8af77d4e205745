package comparison

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// A crowd is a client with many connections, which says how far it is and waits until we
// have looked at the processes:
//
//	begun     has no connection yet: their memory without
//	opened    has all of them: their memory with; their CPU time while nothing goes on
//	{…}       the result
//	done      their CPU time again
type crowd struct {
	says *bufio.Reader
	goOn io.WriteCloser
	from *os.File
	to   *os.File // the client's standard output; ours until it has it
}

func newCrowd(client *exec.Cmd) (*crowd, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdin, err := client.StdinPipe()
	if err != nil {
		r.Close()
		w.Close()
		return nil, err
	}
	client.Stdout = w
	return &crowd{says: bufio.NewReader(r), goOn: stdin, from: r, to: w}, nil
}

func (c *crowd) close() {
	c.to.Close()
	c.from.Close()
	c.goOn.Close()
}

// await waits until the client says a word; what it says before goes to result.
func (c *crowd) await(word string, result io.Writer) error {
	for {
		line, err := c.says.ReadString('\n')
		if err != nil {
			return fmt.Errorf("pump ended before it was %s: %w", word, err)
		}
		if line == word+"\n" {
			return nil
		}
		io.WriteString(result, line)
	}
}

// settling is how long the processes may still have to do with what was before: EXT-DS looks
// after each offer for a second.
const settling = 1200 * time.Millisecond

// proceed lets the client go on.
func (c *crowd) proceed() { c.goOn.Write([]byte{'\n'}) } // if it is gone, await says so

// idling is how long idle connections are looked at.
const idling = time.Second

// crowdCosts is what is seen of the processes.
type crowdCosts struct {
	memory int64         // of the programs, that the connections have added to
	idle   time.Duration // CPU time of programs and daemons while all were idle
	busy   time.Duration // and from then to the end
}

// look follows the client to its end.
func (c *crowd) look(programs, daemons []int, result *bytes.Buffer) (seen crowdCosts, err error) {
	c.to.Close() // the client has its own
	all := append(append([]int(nil), programs...), daemons...)
	if err := c.await("begun", result); err != nil {
		return seen, err
	}
	without, err := resident(programs)
	if err != nil {
		return seen, err
	}
	c.proceed()
	if err := c.await("opened", result); err != nil {
		return seen, err
	}
	time.Sleep(settling)
	with, err := resident(programs)
	if err != nil {
		return seen, err
	}
	opened, err := cpuOf(all)
	if err != nil {
		return seen, err
	}
	time.Sleep(idling)
	idle, err := cpuOf(all)
	if err != nil {
		return seen, err
	}
	c.proceed()
	if err := c.await("done", result); err != nil {
		return seen, err
	}
	done, err := cpuOf(all)
	c.proceed()
	return crowdCosts{with - without, idle - opened, done - idle}, err
}

var pss = regexp.MustCompile(`(?m)^Pss: +(\d+) kB$`)

// resident is the memory of processes together, in which what they share counts once: the
// kernel divides each page by how many have it.
func resident(pids []int) (sum int64, err error) {
	for _, pid := range pids {
		name := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		m := pss.FindSubmatch(text)
		if m == nil {
			return 0, fmt.Errorf("%s has no Pss", name)
		}
		kB, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += kB << 10
	}
	return sum, nil
}
