package fabric

import (
	"errors"
	"testing"
)

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "shm shm:",
		"/run/exn":             "shm shm:/run/exn",
		"shm:/run/exn":         "shm shm:/run/exn",
		"shm:/run/a?b":         "shm shm:/run/a?b",
		"./a:b":                "shm shm:./a:b",
		"/run/a:b":             "shm shm:/run/a:b",
		"relative":             "shm shm:relative",
		"ofi:tcp":              "ofi ofi:tcp",
		"ofi:tcp?nodes=/a&x=1": "ofi ofi:tcp?nodes=%2Fa&x=1",
	} {
		p, err := ParsePlace(text)
		if got := p.Scheme + " " + p.String(); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
		if again, err := ParsePlace(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("%q printed is %q, which reads as %q, %v", text, p, again, err)
		}
	}
	for _, text := range []string{"ofi:tcp?%zz", "ofi:tcp?a=1&a=2"} {
		if p, err := ParsePlace(text); err == nil {
			t.Errorf("%q reads as %+v", text, p)
		}
	}
}

func TestOpenKnowsItsBackends(t *testing.T) {
	asked := Place{}
	refused := errors.New("refused")
	AddBackend("test", func(p Place, id NodeID) (Node, error) {
		asked = p
		return nil, refused
	})
	defer delete(backends.open, "test")
	if _, err := Open("test:x?y=z", 3); !errors.Is(err, refused) || asked.Name != "x" || asked.Options.Get("y") != "z" {
		t.Errorf("asked for %+v, %v", asked, err)
	}
	if _, err := Open("tset:x", 3); !errors.Is(err, ErrScheme) {
		t.Errorf("a scheme that does not exist: %v", err)
	}
}
