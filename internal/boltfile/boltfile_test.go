package boltfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// write makes a file with buckets that are small, large and empty.
func write(tb testing.TB, records int) (file []byte, want map[string]string) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "file")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, PageSize: 1 << 12})
	if err != nil {
		tb.Fatal(err)
	}
	want = make(map[string]string)
	for round := range 3 {
		err = db.Update(func(tx *bolt.Tx) error {
			for _, bucket := range []string{"small", "large", "empty"} {
				b, err := tx.CreateBucketIfNotExists([]byte(bucket))
				if err != nil {
					return err
				}
				n := map[string]int{"small": 3, "large": records}[bucket]
				for i := round; i < n; i += 3 {
					key, value := fmt.Sprint("key ", i), bytes.Repeat([]byte{byte(i)}, i%1000*(i%7))
					want[bucket+"/"+key] = string(value)
					if err := b.Put([]byte(key), value); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	if file, err = os.ReadFile(path); err != nil {
		tb.Fatal(err)
	}
	return file, want
}

func read(file []byte, fault func(error) error) (map[string]string, error) {
	got := make(map[string]string)
	err := Walk(bytes.NewReader(file), int64(len(file)), Visitor{
		Fault: fault,
		Record: func(bucket, key, value []byte) error {
			got[string(bucket)+"/"+string(key)] = string(value)
			return nil
		},
	})
	return got, err
}

// What bbolt wrote is read.
func TestWalk(t *testing.T) {
	for _, records := range []int{0, 1, 10, 1000, 20_000} {
		file, want := write(t, records)
		got, err := read(file, nil)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d records, %v, want %d", len(got), err, len(want))
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s = %q, want %q", key, got[key], value)
			}
		}
	}
}

// A fault is told once for each page, and what is not behind it is read.
func TestFaults(t *testing.T) {
	file, want := write(t, 1000)
	faults := 0
	for page := 2 << 12; page < len(file); page += 1 << 12 {
		old := bytes.Clone(file[page : page+1<<12])
		clear(file[page : page+1<<12])
		got, err := read(file, func(error) error {
			faults++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range got {
			if want[key] != value && value != "" && !bytes.Contains([]byte(value), []byte{0}) {
				t.Errorf("%s = %q, want %q", key, value, want[key])
			}
		}
		copy(file[page:], old)
	}
	if faults < 50 {
		t.Errorf("%d faults, want one for each page that is used", faults)
	}
}

// A file that bbolt wrote with a list of free pages, an empty one and any other file are refused.
func TestNotOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	listed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{
		"a list of free pages": listed, "empty": nil, "text": bytes.Repeat([]byte("text "), 10_000),
	} {
		if _, err := read(file, nil); err == nil {
			t.Errorf("%s: read, want an error", name)
		}
	}
}

// Whatever a file says: it is read to its end, and nothing is read twice.
func FuzzWalk(f *testing.F) {
	file, _ := write(f, 10)
	f.Add(file, 0, byte(0))
	f.Fuzz(func(t *testing.T, file []byte, at int, flip byte) {
		if at >= 0 && at < len(file) {
			file = bytes.Clone(file)
			file[at] ^= flip
		}
		bytesRead := 0
		err := Walk(bytes.NewReader(file), int64(len(file)), Visitor{
			Fault: func(error) error { return nil },
			Record: func(_, key, value []byte) error {
				bytesRead += len(key) + len(value)
				return nil
			},
		})
		if err != nil || bytesRead > 64*len(file) {
			t.Errorf("%d bytes read of %d, %v", bytesRead, len(file), err)
		}
	})
}
