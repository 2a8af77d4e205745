package page

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// A browser is a Chromium without a window, spoken to by its DevTools protocol over two
// pipes: JSON objects, each ended by a zero byte.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	id      int
}

// browse starts one with a page.
func browse(t *testing.T, url string) *browser {
	t.Helper()
	root := debroot.Need(t, "chromium-headless-shell")
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := root.Command(t.Context(), "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "--window-size=1000,1400")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &complaints, &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	t.Cleanup(func() {
		cmd.Cancel() // the whole group
		cmd.Wait()   // it was killed
		ourIn.Close()
		ourOut.Close()
		if t.Failed() {
			t.Logf("chromium said: %s", complaints.String())
		}
	})
	b := &browser{t: t, to: ourOut, from: bufio.NewReader(ourIn)}
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", nil, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until("Page.loadEventFired")
	return b
}

// read reads what the browser says next.
func (b *browser) read() (m struct {
	ID     int
	Method string
	Result json.RawMessage
	Error  json.RawMessage
}) {
	b.t.Helper()
	text, err := b.from.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser is gone: %v", err)
	}
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *browser) until(event string) {
	b.t.Helper()
	for b.read().Method != event {
	}
}

// call calls a method; what happens meanwhile is passed over.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("the browser is gone: %v", err)
	}
	for {
		m := b.read()
		if m.ID != b.id {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

// value is that of an expression of JavaScript.
func (b *browser) value(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// The page opens from a file, shows a row's values when its point is hovered, changes with
// the colour scheme, and fits its window.
func TestPageInABrowser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report")
	if err := Write(dir, sample()); err != nil {
		t.Fatal(err)
	}
	b := browse(t, "file://"+filepath.Join(dir, Index))
	if n := b.value(`document.querySelectorAll("svg.figure").length`); n != "2" {
		t.Errorf("%s figures", n)
	}
	if width := b.value(`document.documentElement.scrollWidth <= innerWidth`); width != "true" {
		t.Error("the page is wider than its window")
	}
	if shown := b.value(`getComputedStyle(document.getElementById("tip")).display`); shown != "none" {
		t.Errorf("before anything is hovered the tip is %s", shown)
	}
	// Over the middle of the third bar.
	var at struct{ X, Y float64 }
	place := b.value(`(() => { const p = document.querySelectorAll("rect.point")[2]; p.scrollIntoView({block: "center"});
		const r = p.getBoundingClientRect(); return JSON.stringify({x: r.x + r.width / 2, y: r.y + r.height / 2}); })()`)
	if err := json.Unmarshal([]byte(place), &at); err != nil {
		t.Fatal(err)
	}
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at.X, "y": at.Y}, nil)
	tip := b.value(`(() => { const t = document.getElementById("tip"); return t.style.display + " " + t.textContent; })()`)
	for _, want := range []string{"block ds-preload, rr-one 64 B", "250 ns", "1/100× the reference, kernel TCP", "99 %"} {
		if !strings.Contains(tip, want) {
			t.Errorf("no %q in the tip: %q", want, tip)
		}
	}
	papers := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		papers[b.value(`getComputedStyle(document.body).backgroundColor`)] = true
		var shot struct{ Data string }
		b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
		data, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(t.ArtifactDir(), scheme+".png"), data, 0o666); err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		colours := map[any]bool{}
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				colours[picture.At(x, y)] = true
			}
		}
		if len(colours) < 20 {
			t.Errorf("%s: only %d colours: nothing is drawn", scheme, len(colours))
		}
	}
	if len(papers) != 2 {
		t.Errorf("light and dark have the paper %v", papers)
	}
}

// Every figure is an image of its own.
func TestFigureInABrowser(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, sample()); err != nil {
		t.Fatal(err)
	}
	b := browse(t, "file://"+filepath.Join(dir, "stream.svg"))
	if n := b.value(`document.documentElement.tagName + " " + document.querySelectorAll(".point").length`); n != "svg 18" {
		t.Errorf("the file shows %s", n)
	}
	overlaps := b.value(`(() => { const seen = [...document.querySelectorAll("text")].map(e => [e.textContent, e.getBBox()]);
		const hit = [];
		for (const [a, p] of seen) for (const [b, q] of seen)
			if (a < b && p.x < q.x + q.width - 1 && q.x < p.x + p.width - 1 && p.y < q.y + q.height - 4 && q.y < p.y + p.height - 4) hit.push(a + " / " + b);
		return hit.join("; "); })()`)
	if overlaps != "" {
		t.Errorf("texts lie over each other: %s", overlaps)
	}
}
