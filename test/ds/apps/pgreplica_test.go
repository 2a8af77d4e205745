package apps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/test/debroot"
)

// A standby of PostgreSQL: its copy of the cluster comes by one connection, what is
// written later by another, and it goes on by itself when it is promoted.
func TestPostgresReplication(t *testing.T) {
	root := debroot.Need(t, "postgresql")
	try := 0
	// Clients ask the standby, too, which is at their end. pg_basebackup forks soon, and what two
	// processes hold gets no lane, so how long it takes is not left to what connections were before.
	compare(t, scenario{root: root, lanes: true, among: true, user: nobody, settings: []string{"EXN_DS_CALLS=8"}, play: func(s *stage) string {
		try++
		primary, pg := s.postgres("primary", try)
		at := func(port string) func(string) string {
			return func(text string) string {
				return strings.TrimSpace(string(s.run(nil, "sh", pg("psql", "-h", "127.0.0.1", "-p", port, "-U", "nobody", "-qAtd", "postgres", "-c", text)...)))
			}
		}
		sql := at(primary)
		sql("create table t as select i, md5(i::text) a, repeat(md5((i*7)::text), 2) b from generate_series(1, 20000) i")

		data := filepath.Join(s.dir, fmt.Sprintf("standby%d", try))
		s.run(nil, "sh", pg("pg_basebackup", "-h", "127.0.0.1", "-p", primary, "-U", "nobody", "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync")...)
		s.Cleanup(func() { os.RemoveAll(data) })
		number := freePort()
		standby := strconv.Itoa(number)
		s.serveBehind(number, "sh", pg("postgres", "-D", data, "-p", standby, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "dynamic_shared_memory_type=mmap", "-c", "fsync=off")...)
		s.ready(standby, pg)

		sql("insert into t select i, md5(i::text), repeat(md5((i*7)::text), 2) from generate_series(20001, 100000) i")
		for i := range 20 { // each of which is sent at once
			sql(fmt.Sprintf("update t set a = 'changed' where i %% 1000 = %d", i))
		}
		sql("delete from t where i % 3 = 0")
		replica, end := at(standby), sql("select pg_current_wal_lsn()")
		for replica("select pg_last_wal_replay_lsn() >= '"+end+"'") != "t" {
			if s.ctx.Err() != nil {
				s.Fatalf("the standby does not come to %s: %s", end, sql("select * from pg_stat_replication"))
			}
			time.Sleep(10 * time.Millisecond)
		}
		const digest = "select count(*), md5(string_agg(i || a || b, ',' order by i)) from t"
		there, here := sql(digest), replica(digest)
		if there != here {
			s.Errorf("the primary has %s, the standby %s", there, here)
		}
		out := fmt.Sprintf("table: %s, streaming: %s, slots: %s\n", here, sql("select state, sync_state from pg_stat_replication"), replica("select status from pg_stat_wal_receiver"))
		return out + fmt.Sprintf("promoted: %s, then %s\n", replica("select pg_promote()"), replica("insert into t values (0); select count(*) from t"))
	}})
}
