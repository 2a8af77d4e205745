package directsockets_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net/http"

	"exnet/directsockets"
)

// A server and a client, as with package net. Once the connection is busy, its bytes go through
// shared memory.
func Example() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()

	c, err := directsockets.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "hello")
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line, err)
	// Output:
	// hello
	// <nil>
}

// HTTP: the server gets a listener, the client a dialer.
func ExampleDialer() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })}
	go server.Serve(l)
	defer server.Close()

	transport := &http.Transport{DialContext: new(directsockets.Dialer).DialContext}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Print(answer.Status, " ", string(body), err)
	// Output:
	// 200 OK hello
	// <nil>
}

// Whether a connection has a lane, and why not.
func ExampleConn_Status() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := directsockets.Dialer{Lanes: directsockets.Options{Off: true}}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.(*directsockets.Conn).Status()
	fmt.Println(s.Upgraded(), s.State, s.Reason)
	fmt.Println(s.Reason.Remedy())
	// Output:
	// false tcp setting
	// unset EXN_DS
}
