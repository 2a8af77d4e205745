package directsockets

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"sync"
	"testing"
	"time"
)

// track records the connections that a listener accepts, to examine them afterwards.
type track struct {
	net.Listener
	mu    sync.Mutex
	conns []*Conn
}

func (l *track) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c.(*Conn))
		l.mu.Unlock()
	}
	return c, err
}

// lane returns how many bytes the connections have read and written on lanes.
func (l *track) lane() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		s := c.Status()
		n += s.VELO.Read + s.VELO.Written + s.RMA.Read + s.RMA.Written
	}
	return n
}

func listen(t *testing.T, o Options) *track {
	t.Helper()
	l, err := (&ListenConfig{Lanes: o}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &track{Listener: l}
}

// HTTP/1.1 and HTTP/2 with TLS, with bodies in both directions, streaming, and clients that go away
// in the middle.
func TestHTTP(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			o := Options{Fabric: fabric(t)}
			l := listen(t, o)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return // the client has gone away
				}
				w.Write(body)
				w.(http.Flusher).Flush()
				if r.URL.Path == "/long" {
					<-r.Context().Done() // it goes away
				}
				w.Write(body)
			}))
			server.Listener.Close()
			server.Listener = l
			transport := &http.Transport{DialContext: (&Dialer{Lanes: o}).DialContext, MaxIdleConnsPerHost: 20}
			if version == "HTTP/2.0" {
				server.TLS = &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{certificate(t)}}
				transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
				transport.ForceAttemptHTTP2 = true
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			client := &http.Client{Transport: transport}
			defer transport.CloseIdleConnections()

			var all sync.WaitGroup
			for k := range 8 {
				all.Go(func() {
					for i := range 60 {
						body := bytes.Repeat([]byte{byte(k), byte(i)}, []int{1, 500, 40000}[i%3])
						r, err := client.Post(server.URL, "", bytes.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						got, err := io.ReadAll(r.Body)
						r.Body.Close()
						if err != nil || !bytes.Equal(got, append(body, body...)) || r.Proto != version {
							t.Errorf("%d bytes of %d, %v, %s", len(got), 2*len(body), err, r.Proto)
						}
					}
				})
			}
			all.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/long", bytes.NewReader(make([]byte, 10)))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if _, err := io.ReadAll(answer.Body); err == nil {
				t.Error("a request that was cancelled has ended well")
			}
			answer.Body.Close()
			if n := l.lane(); n < 1<<20 {
				t.Errorf("only %d bytes by lanes", n)
			}
		})
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Sum is what net/rpc serves.
type Sum struct{}

// Add adds.
func (Sum) Add(args [2]int, sum *int) error {
	*sum = args[0] + args[1]
	return nil
}

func TestRPC(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	l := listen(t, o)
	defer l.Close()
	server := rpc.NewServer()
	if err := server.Register(Sum{}); err != nil {
		t.Fatal(err)
	}
	go server.Accept(l)
	c, err := (&Dialer{Lanes: o}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := rpc.NewClient(c)
	defer client.Close()
	for try := 0; try < 20 && l.lane() == 0 && !t.Failed(); try++ {
		// on a busy machine the lane may be late
		var all sync.WaitGroup
		for k := range 10 {
			all.Go(func() {
				for i := range 200 {
					var sum int
					if err := client.Call("Sum.Add", [2]int{k, i}, &sum); err != nil || sum != k+i {
						t.Errorf("%d + %d = %d, %v", k, i, sum, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	if n := l.lane(); n == 0 {
		t.Error("no byte by a lane")
	}
}
