package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/spf13/pflag"
)

// secrets are the settings that may have a password in them. No value of theirs is shown.
var secrets = []string{"store", "election", "capacity-config"}

// readFile reads the configuration file, of which nothing is used unless all of it can be, and sets the
// flags that neither the command line nor the environment has set. Without a path there is none.
func readFile(path string, flags *pflag.FlagSet) (*config.File, error) {
	if path == "" {
		return &config.File{}, nil
	}
	// What the file says is first looked at as if nobody said anything else.
	var alone settings
	scratch := pflag.NewFlagSet("file", pflag.ContinueOnError)
	scratch.SortFlags = false
	alone.add(scratch)
	known := config.Known{Addresses: addresses}
	scratch.VisitAll(func(f *pflag.Flag) { known.Settings = append(known.Settings, f.Name) })
	file, err := config.Load(path, known)
	if err != nil {
		return nil, err
	}
	places := make(map[string]config.Position)
	for _, setting := range file.Settings {
		if err := set(scratch.Lookup(setting.Name), setting.Values); err != nil {
			value := setting.String()
			if slices.Contains(secrets, setting.Name) {
				value = fmt.Sprintf("a list of %d values", len(setting.Values))
			}
			file.Fault(setting.At, "%s is %s, want %v", setting.Name, value, err)
			continue
		}
		places[setting.Name] = setting.At
	}
	for _, fault := range alone.faults() {
		if at, ok := places[fault.flag]; ok && !slices.Contains(addresses, fault.flag) { // told by Load
			file.Fault(at, "%s %s", fault.flag, fault.text)
		}
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	for _, setting := range file.Settings {
		if flag := flags.Lookup(setting.Name); !flag.Changed {
			_ = set(flag, setting.Values) // it went well above
		}
	}
	return file, nil
}

// set gives a flag the values of a file. The error is what is wanted.
func set(flag *pflag.Flag, values []string) error {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		return slice.Replace(values)
	}
	if len(values) != 1 {
		return errors.New("one value")
	}
	if flag.Value.Set(values[0]) == nil {
		return nil
	}
	return cmp.Or(wanted(flag), errors.New("a "+flag.Value.Type()))
}

// wanted says what values a flag takes; nil if it says so itself.
func wanted(flag *pflag.Flag) error {
	switch flag.Value.Type() {
	case "int", "int64":
		return errors.New("a whole number")
	case "uint64":
		return errors.New("a whole number that is not negative")
	case "duration":
		return errors.New("a time such as 500ms, 10s or 24h")
	case "size":
		return errors.New(wantSize)
	case "bool":
		return errors.New("true or false")
	}
	return nil
}
