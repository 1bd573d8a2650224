package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/spf13/pflag"
)

// secrets are the settings that may contain a password. Their values are never shown.
var secrets = []string{"store", "election", "capacity-config"}

// readFile reads the configuration file and sets the flags that neither the command line nor the environment
// has set. If anything in the file is wrong, it sets none. With an empty path it returns an empty file.
func readFile(path string, flags *pflag.FlagSet) (*config.File, error) {
	if path == "" {
		return &config.File{}, nil
	}
	// First all settings of the file go into flags of their own. So a value that a flag overrules is checked
	// too, and an error here has no effect on the real flags.
	var alone settings
	scratch := pflag.NewFlagSet("file", pflag.ContinueOnError)
	scratch.SortFlags = false
	alone.addFlags(scratch)
	known := config.Known{Addresses: addresses}
	scratch.VisitAll(func(f *pflag.Flag) { known.Settings = append(known.Settings, f.Name) })
	file, err := config.Load(path, known)
	if err != nil {
		return nil, err
	}
	// Faults of single values: of the wrong type, or not readable at all.
	places := make(map[string]config.Position)
	for _, setting := range file.Settings {
		if err := setFlag(scratch.Lookup(setting.Name), setting.Values); err != nil {
			value := setting.String()
			if slices.Contains(secrets, setting.Name) {
				// A value that is a list by mistake may still have a password in it.
				value = fmt.Sprintf("a list of %d values", len(setting.Values))
			}
			file.Fault(setting.At, "%s is %s, want %v", setting.Name, value, err)
			continue
		}
		places[setting.Name] = setting.At
	}
	// Faults of values that can be read and make no sense. Load has reported the addresses already, and
	// faults without a place are those of defaults that the file does not mention.
	for _, fault := range alone.findFaults() {
		if at, ok := places[fault.flag]; ok && !slices.Contains(addresses, fault.flag) {
			file.Fault(at, "%s %s", fault.flag, fault.text)
		}
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	for _, setting := range file.Settings {
		if flag := flags.Lookup(setting.Name); !flag.Changed {
			_ = setFlag(flag, setting.Values) // cannot fail: the same value was set above
		}
	}
	return file, nil
}

// setFlag sets a flag to the values from a file. The error describes the values that it takes.
func setFlag(flag *pflag.Flag, values []string) error {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		return slice.Replace(values)
	}
	// A list in the file for a flag that has one value.
	if len(values) != 1 {
		return errors.New("one value")
	}
	if flag.Value.Set(values[0]) == nil {
		return nil
	}
	return cmp.Or(wantedValue(flag), errors.New("a "+flag.Value.Type()))
}

// wantedValue describes the values that a flag takes, as an error; nil if the flag's own error does so.
func wantedValue(flag *pflag.Flag) error {
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
