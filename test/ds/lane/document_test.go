package lane_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"exnet/test/ds/lane"
)

// A field is where a table of the document says it is.
type field struct{ offset, size uint64 }

// A document is what ext-ds.md says, as far as it is in tables.
type document struct {
	head, control, message map[string]field
	tags                   map[string]uint64
	lengths                map[uint64][2]uint64 // of payloads, by tag
	text                   string
}

func readDocument(t *testing.T) document {
	t.Helper()
	text, err := os.ReadFile("../../../docs/protocols/ext-ds.md")
	if err != nil {
		t.Fatal(err)
	}
	d := document{text: string(text), tags: make(map[string]uint64), lengths: make(map[uint64][2]uint64)}
	d.head, d.control, d.message = d.fields(t, "### Head"), d.fields(t, "### Control block"), d.fields(t, "### Control messages")
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([A-Z_]+) \| (\d+)(?:\.\.(\d+))? \|`)
	for _, m := range row.FindAllStringSubmatch(d.section(t, "## 4. Slots"), -1) {
		tag, least := lane.Number(t, m[1]), lane.Number(t, m[3])
		most := least
		if m[4] != "" {
			most = lane.Number(t, m[4])
		}
		d.tags[m[2]], d.lengths[tag] = tag, [2]uint64{least, most}
	}
	return d
}

// section is the text below a heading, up to the next one.
func (d document) section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(d.text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("ext-ds.md has no heading %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

func (d document) fields(t *testing.T, heading string) map[string]field {
	t.Helper()
	all := make(map[string]field)
	row := regexp.MustCompile("(?m)^\\| (\\d+) \\| (\\d+) \\| `([a-z_0-9.]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(d.section(t, heading), -1) {
		all[m[3]] = field{lane.Number(t, m[1]), lane.Number(t, m[2])}
	}
	return all
}

// get reads a field of a record that begins at b[0].
func get(fields map[string]field, b []byte, name string) uint64 {
	f, found := fields[name]
	if !found {
		panic("ext-ds.md has no field " + name)
	}
	switch part := b[f.offset:]; f.size {
	case 1:
		return uint64(part[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(part))
	case 4:
		return uint64(binary.LittleEndian.Uint32(part))
	default:
		return binary.LittleEndian.Uint64(part)
	}
}

// fileSize is the formula of section 3.
func fileSize(lanes, slots, windows, window uint64) uint64 {
	return (8192+lanes*(256+128*slots)+4095)/4096*4096 + windows*window
}

// The tables of ext-ds.md are what the C code has, no more and no less.
func TestDocument(t *testing.T) {
	d := readDocument(t)
	layout := map[string]map[string]field{"head": {}, "control": {}, "message": {}}
	tags, sizes, limits, kinds := make(map[string]uint64), make(map[string]uint64), make(map[string]uint64), make(map[string]uint64)
	features := make(map[string]uint64)
	var reasons, states []string
	for _, words := range lane.Lines(t, filepath.Join(vectors, "layout.txt")) {
		last := words[len(words)-1]
		name := strings.Join(words[1:len(words)-1], " ")
		switch of := words[0]; of {
		case "head", "control", "message":
			layout[of][words[1]] = field{lane.Number(t, words[2]), lane.Number(t, words[3])}
		case "size":
			sizes[name] = lane.Number(t, last)
		case "limit":
			limits[name] = lane.Number(t, last)
		case "tag":
			tags[name] = lane.Number(t, last)
		case "feature":
			features[name] = lane.Number(t, last)
		case "kind":
			kinds[name] = lane.Number(t, last)
		case "reason":
			reasons = append(reasons, name)
		case "state":
			states = append(states, last+" "+name)
		case "file":
			if size := fileSize(lane.Number(t, words[1]), lane.Number(t, words[2]), lane.Number(t, words[3]), lane.Number(t, words[4])); size != lane.Number(t, last) {
				t.Errorf("a file of %v is %d bytes by the formula", words[1:], size)
			}
		default:
			t.Errorf("layout has %v", words)
		}
	}
	for name, documented := range map[string]map[string]field{"head": d.head, "control": d.control, "message": d.message} {
		if !maps.Equal(documented, layout[name]) || len(documented) == 0 {
			t.Errorf("%s: ext-ds.md has %v, the C code %v", name, documented, layout[name])
		}
	}
	if !maps.Equal(d.tags, tags) || len(tags) == 0 {
		t.Errorf("tags: ext-ds.md has %v, the C code %v", d.tags, tags)
	}
	for name, want := range map[string]uint64{"head": 8192, "control": 256, "slot": 128, "payload": 120, "message": 256} {
		if sizes[name] != want {
			t.Errorf("%s is %d bytes, ext-ds.md says %d", name, sizes[name], want)
		}
	}
	for name, want := range map[string]uint64{"version": 3, "waiters": 8, "reserved": 4, "piece": 65536} {
		if limits[name] != want {
			t.Errorf("%s is %d, ext-ds.md says %d", name, limits[name], want)
		}
	}
	if size := d.head["waiter"].size; size != 64*limits["waiters"] {
		t.Errorf("the head has %d bytes of waiters", size)
	}
	words := strings.Join(strings.Fields(d.text), " ")
	for _, says := range []string{
		"**Version " + strconv.FormatUint(limits["version"], 10) + ".**",
		fmt.Sprintf("%d HELLO, %d ATTACH, %d ATTACH_OK, %d ATTACH_NO", kinds["HELLO"], kinds["ATTACH"], kinds["ATTACH_OK"], kinds["ATTACH_NO"]),
		fmt.Sprintf("bits of what the sender does: %d BUFFER, it takes such slots; %d DATE", features["BUFFER"], features["DATE"]),
		"numbered from 0 (`enum reason`): " + strings.Join(reasons, ", ") + ".",
		"States: " + strings.Join(states, ", ") + ".",
	} {
		if !strings.Contains(words, says) {
			t.Errorf("ext-ds.md does not say %q, as the C code does", says)
		}
	}
}
