#!/bin/sh
# systemd as the first process of namespaces of its own, with a root of its own: the programs are those of
# the caller's /usr, /etc and /var have what is needed only. It starts redis-server as a service by the
# recipes of docs/operations.md, exn0 and exn-tun bridge by their units, writes to DIR/out what becomes of them, and powers off.
#
#	systemd.sh begin|inside DIR LIBRARY EXN-TUN REPOSITORY
set -e
step=$1 dir=$2 library=$3 tun=$4 repository=$5

if [ "$step" = begin ]; then
	# A cgroup of version 2, whose name the caller removes afterwards. Systemd takes what is below its own for its own.
	group=/sys/fs/cgroup
	[ -e $group/cgroup.controllers ] || group=$group/unified
	mkdir "$group/$(basename "$dir")"
	echo $$ >"$group/$(basename "$dir")/cgroup.procs"
	exec unshare --mount --pid --fork --kill-child --net --cgroup --uts --ipc sh "$0" inside "$dir" "$library" "$tun" "$repository"
fi

root=$dir/root
mkdir "$root"
mount -t tmpfs -o mode=755 exnet "$root"
cd "$root"
mkdir -p usr etc/redis etc/exnet etc/systemd/system/redis-server.service.d etc/tmpfiles.d var/lib/redis var/log/redis var/tmp tmp run proc sys dev root
chmod 1777 tmp var/tmp
for link in bin sbin lib lib64; do [ ! -e /usr/$link ] || ln -s usr/$link $link; done
mount --rbind /usr usr
mount -t tmpfs -o mode=755 exnet usr/local
mkdir -p usr/local/bin usr/local/lib
cp "$tun" usr/local/bin/exn-tun
cp "$library" usr/local/lib/libextds.so
chmod 755 usr/local/bin/exn-tun usr/local/lib/libextds.so

mount -t proc exnet proc
mount -t sysfs exnet sys
mount -t cgroup2 exnet sys/fs/cgroup
mount -t tmpfs -o mode=755 exnet dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"; done
mkdir dev/net dev/pts dev/shm
mknod -m 666 dev/net/tun c 10 200
mknod -m 666 dev/tty c 5 0
mount -t devpts -o newinstance,ptmxmode=666 exnet dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: >dev/console
mount -t tmpfs -o mode=755 exnet run

cat >etc/passwd <<'-'
root:x:0:0::/root:/bin/sh
redis:x:901:901::/var/lib/redis:/bin/sh
alice:x:902:902::/tmp:/bin/sh
nobody:x:65534:65534::/:/bin/false
-
cat >etc/group <<'-'
root:x:0:
tty:x:5:
redis:x:901:
alice:x:902:
exnet:x:903:
nogroup:x:65534:
-
echo 0123456789abcdef0123456789abcdef >etc/machine-id
cp /etc/redis/redis.conf etc/redis/
chown -R 901:901 etc/redis var/lib/redis var/log/redis
# The recipes as they are written.
recipe() { sed -n "/^    # $1/,/^\$/p" "$repository/docs/operations.md" | sed 's/^    //'; }
recipe '\/etc\/tmpfiles.d\/exnet.conf' >etc/tmpfiles.d/exnet.conf
recipe '\/etc\/systemd\/system\/redis-server' >etc/systemd/system/redis-server.service.d/exnet.conf
usr/local/bin/exn-tun policy >etc/exnet/policy.toml
cp "$repository/cmd/exn-tun/exn-tun@.service" "$repository/cmd/exn-tun/exn-tun-bridge.service" etc/systemd/system/
printf 'node = 8\naddr = ["10.2.0.8/24"]\n' >etc/exnet/exn0.toml
# Nothing else than this is started.
cat >etc/systemd/system/default.target <<'-'
[Unit]
Requires=basic.target
Wants=try.service
After=basic.target
AllowIsolate=yes
-
cat >etc/systemd/system/try.service <<'-'
[Service]
Type=oneshot
ExecStart=/bin/sh /try
StandardOutput=append:/out
StandardError=append:/out
Environment=PATH=/usr/local/bin:/usr/sbin:/usr/bin
ExecStopPost=/usr/bin/systemctl --no-block poweroff
-
cat >try <<'-'
fabric=/run/exn-group
ip link set lo up
systemd-tmpfiles --create /etc/tmpfiles.d/exnet.conf
client() {
	systemctl stop client 2>/dev/null
	systemd-run -q --unit client --collect -p User=alice -p SupplementaryGroups=exnet -p Environment=EXN_PEERS=group -p StandardOutput=null \
		/usr/local/bin/exn-tun run --fabric $fabric -- redis-cli -r 1000000 -i 0.002 ping
	until [ "$(exn-tun show sockets --fabric $fabric | grep -cE ' lane  +[^ ]+  +[0-9]')" -ge 2 ]; do
		systemctl -q is-active redis-server client || { journalctl -u redis-server -u client -n 20 --no-pager; exit 1; }
		sleep 0.1
		exn-tun show sockets --fabric $fabric >/last
	done
}
systemctl start redis-server || { journalctl -u redis-server -n 20 --no-pager; exit 1; }
client && echo lanes
systemctl restart redis-server
client && echo lanes again
systemctl stop redis-server client
# What a program leaves that is killed, only its own user's next one removes.
until [ -z "$(find $fabric/ds -mindepth 1 ! -user alice)" ]; do sleep 0.1; done
echo nothing left

said() { until systemctl show -P StatusText exn-tun@exn0 | grep "$1"; do sleep 0.1; done; }
systemctl start exn-tun@exn0 && said 'is up'
systemctl kill -s KILL exn-tun@exn0 && said 'left by a crash'
systemctl stop exn-tun@exn0 && ! ip link show exn0 2>/dev/null && echo gone

# A container on a bridge.
ip link add bridge0 type bridge
ip address add 10.3.0.1/24 dev bridge0
ip link set bridge0 up
systemd-run -q --unit container -p Type=exec -p PrivateNetwork=yes -p User=alice sleep 1000000
systemctl start exn-tun-bridge && systemctl show -P StatusText exn-tun-bridge
process=$(systemctl show -P MainPID container)
ip link add to-it type veth peer name eth0 netns $process
ip link set to-it master bridge0 up
nsenter -t $process -n ip address add 10.3.0.7/24 dev eth0
until [ -L $fabric/addresses/00000000000000000000ffff0a030007 ] && [ -L $fabric/addresses/00000000000000000000ffff0a030001 ]; do sleep 0.1; done
systemctl stop exn-tun-bridge && ! [ -e $fabric/addresses ] && echo nobody is on a bridge
-
: >last
: >out
mount --bind "$dir/out" out
mount --bind "$dir/last" last
mkdir run/old
pivot_root . run/old
umount -l /run/old
exec env -i container=exnet /lib/systemd/systemd
