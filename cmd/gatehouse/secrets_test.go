package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// However a password is written in the file, and whatever is wrong there, no message shows it.
func TestNoMessageShowsAPassword(t *testing.T) {
	const canary = "CANARY"
	long := canary + strings.Repeat("x", 200)
	var texts []string
	for _, name := range []string{"store", "election", "capacity-config"} {
		for _, scheme := range []string{"redis", "rediss", "etcd", "file", "x"} {
			url := scheme + "://user:" + canary + "@h:1/k"
			texts = append(texts,
				name+": ["+url+", x]", name+": [x, user:"+canary+"@h]", name+": [["+url+"]]",
				name+": {"+url+": x}", name+": {x: "+url+"}", name+": !"+url+" x", name+": !<"+url+"> x",
				name+": *"+url, name+": &"+url+" x", name+": "+url+":99999", name+": "+url+" x",
				name+": \""+url, name+": '"+url, name+": "+url+"%zz", name+": "+url+"?ttl=-1&x=y",
				name+": "+strings.Replace(url, "@h", "@[h", 1), name+": |\n  "+url+"\n  "+url,
				name+": "+strings.ReplaceAll(url, "://", ":/"), name+": "+scheme+":user:"+canary+"@h",
				name+": "+scheme+"://user:"+long+"@h/k", name+": ["+scheme+"://user:"+long+"@h/k, x]",
				name+" "+url+": x", url+": x", url, name+":\n\t"+url, "http: "+url, "jarl: ["+url+"]",
				name+": "+url+"\n"+name+": "+url, name+": "+url+"\n---\n"+url,
			)
		}
	}
	for _, text := range texts {
		path := filepath.Join(t.TempDir(), "gatehouse.yaml")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var s settings
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		s.addFlags(flags)
		_, err := newServePlan(t.Context(), &s, flags, &path)
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%q: the message is %v, want it without the password", text, err)
		}
	}
	for _, name := range []string{"store", "election", "capacity-config"} {
		for _, value := range []string{
			"redis://user:" + canary + "@h:x", "redis://user:" + canary + "@[h", "redis://:" + canary + "@",
			"etcd://user:" + canary + "@h", "user:" + canary + "@h", "x://user:" + canary + "@h/%zz",
			"redis://user:" + long + "@h:x",
		} {
			var s settings
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			s.addFlags(flags)
			err := flags.Set(name, value)
			if err == nil {
				err = s.checkFlags()
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("--%s %s: the message is %v, want it without the password", name, value, err)
			}
		}
	}
}
