package answers_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"exnet/directsockets"
)

// role is what the environment says for the Go end, which does what answers.c does.
const role = "ANSWERS_GO"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	if err := goEnd(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func goEnd(args []string) error {
	if args[0] == "serve" {
		l, err := directsockets.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			b := make([]byte, 1)
			for err == nil {
				if _, err = c.Read(b); err == nil {
					_, err = c.Write(b)
				}
			}
			c.Close()
		}
	}
	c, err := directsockets.Dial("tcp", "127.0.0.1:"+args[1])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := strconv.Atoi(strings.TrimSpace(in.Text()))
		b := []byte("x")
		for ; err == nil && n > 0; n-- {
			if _, err = c.Write(b); err == nil {
				_, err = io.ReadFull(c, b)
			}
		}
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("done")
		}
	}
	return nil // without Close, as a C program that ends
}
