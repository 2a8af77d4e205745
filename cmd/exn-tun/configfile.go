package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// configFile is a flag that names a TOML file with values for the other flags of
// its command: their names are the keys, what is written on the command line wins.
// A flag that can be repeated takes an array.
type configFile string

// BeforeResolve reads the file and lets kong ask it for the flags not given. Kong
// calls it when the flag is there.
func (configFile) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	path := string(ctx.FlagValue(trace.Flag).(configFile))
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	f := &fileValues{path: path}
	if f.meta, err = toml.Decode(string(text), &f.values); err != nil {
		return f.explain(err)
	}
	var names []string
	for _, flag := range ctx.Flags() {
		if flag.Name != "help" && flag != trace.Flag {
			names = append(names, flag.Name)
		}
	}
	for _, key := range f.meta.Keys() { // in the order of the file
		if name := key[0]; !slices.Contains(names, name) {
			slices.Sort(names)
			return f.at(f.values[name], fmt.Errorf("unknown key %q; there are %s", name, strings.Join(names, ", ")))
		}
	}
	ctx.AddResolver(f)
	return nil
}

// fileValues are the contents of a configuration file.
type fileValues struct {
	path   string
	meta   toml.MetaData
	values map[string]toml.Primitive
}

// Validate implements kong.Resolver.
func (*fileValues) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. The value is tried at once, while its line is
// still known.
func (f *fileValues) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	raw, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	var value any
	if err := f.meta.PrimitiveDecode(raw, &value); err != nil {
		return nil, f.explain(err)
	}
	words, err := flagWords(value, flag.IsSlice())
	if err != nil || len(words) == 0 {
		return nil, f.atUnless(err == nil, flag.Name, err)
	}
	text := strings.Join(words, string(flag.Tag.Sep))
	err = flag.Parse(kong.Scan().PushTyped(text, kong.FlagValueToken), reflect.New(flag.Target.Type()).Elem())
	return text, f.atUnless(err == nil, flag.Name, err)
}

// flagWords writes a TOML value as on a command line.
func flagWords(value any, repeated bool) ([]string, error) {
	switch v := value.(type) {
	case string:
		return []string{v}, nil
	case int64:
		return []string{strconv.FormatInt(v, 10)}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case []any:
		if !repeated {
			return nil, errors.New("takes one value, not an array")
		}
		var all []string
		for _, element := range v {
			words, err := flagWords(element, false)
			if err != nil {
				return nil, err
			}
			all = append(all, words...)
		}
		return all, nil
	}
	return nil, fmt.Errorf("cannot be a %T; write a string, an integer or a boolean", value)
}

// atUnless is at, or nil when all is well.
func (f *fileValues) atUnless(well bool, key string, err error) error {
	if well {
		return nil
	}
	return f.at(f.values[key], fmt.Errorf("%s: %w", key, err))
}

// at adds the line of a value to an error. The decoder tells it to nobody but those
// who fail to decode.
func (f *fileValues) at(value toml.Primitive, err error) error {
	located := f.meta.PrimitiveDecode(value, &complaint{err})
	if e, ok := errors.AsType[toml.ParseError](located); ok && e.Position.Line > 0 {
		return f.explain(located)
	}
	// The table of a dotted key has no line, but what is in it has.
	var table map[string]toml.Primitive
	if f.meta.PrimitiveDecode(value, &table) == nil {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			return f.at(table[name], err)
		}
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

type complaint struct{ err error }

func (c *complaint) UnmarshalTOML(any) error { return c.err }

// explain puts file and line in front of what is wrong.
func (f *fileValues) explain(err error) error {
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Errorf("%s:%d: %s", f.path, at.Position.Line, at.Message)
	}
	return fmt.Errorf("%s: %w", f.path, err)
}
