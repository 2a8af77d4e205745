package apps_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"exnet/test/debroot"
)

const slapdConfiguration = `
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=x"
rootdn "cn=admin,dc=x"
rootpw secret
directory %s
maxsize 268435456
sizelimit unlimited
dbnosync
`

// OpenLDAP's server, which has a thread for its sets and others for its work, and
// clients that ask one after the other and many at once.
func TestSlapd(t *testing.T) {
	root := debroot.Need(t, "slapd", "ldap-utils")
	const entries, clients = 1000, 6
	var add, modify, ask bytes.Buffer
	fmt.Fprint(&add, "dn: dc=x\nobjectClass: dcObject\nobjectClass: organization\no: x\ndc: x\n\n")
	for i := range entries {
		fmt.Fprintf(&add, "dn: cn=u%d,dc=x\nobjectClass: inetOrgPerson\ncn: u%d\nsn: s%d\ndescription: %s\n\n", i, i, i, strings.Repeat("d", 1+i*7%3000))
		fmt.Fprintf(&modify, "dn: cn=u%d,dc=x\nchangetype: modify\nreplace: sn\nsn: m%d\n\n", i, i)
	}
	for i := range entries / 10 {
		fmt.Fprintf(&ask, "u%d\n", i)
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		url := fmt.Sprintf("ldap://127.0.0.1:%d/", port)
		s.serve(port, "slapd", "-d", "0", "-h", url, "-f", s.write("slapd.conf", fmt.Sprintf(slapdConfiguration, s.fresh("ldap"))))
		do := func(input []byte, program string, args ...string) string {
			return digest(s.run(input, program, append([]string{"-x", "-H", url, "-D", "cn=admin,dc=x", "-w", "secret"}, args...)...))
		}
		out := do(add.Bytes(), "ldapadd")
		got := make([]string, clients)
		var wait sync.WaitGroup
		for i := range clients {
			wait.Go(func() { got[i] = do(nil, "ldapsearch", "-LLL", "-b", "dc=x", "-E", "pr=50/noprompt", "(sn=*)") })
		}
		wait.Wait()
		out += fmt.Sprint(got) + do(modify.Bytes(), "ldapmodify")
		out += do(ask.Bytes(), "ldapsearch", "-LLL", "-b", "dc=x", "-f", "-", "(cn=%s)", "sn")
		return out + do(nil, "ldapdelete", "-r", "dc=x")
	}})
}
