#!/bin/sh
# Two containers of podman: redis-server in one, redis-benchmark without end in the
# other. It says "up", and waits for the end of its input; then they are killed by the
# end of the process namespace that the caller made for this, as he made one of networks
# and one of mounts.
#
#	podman.sh CASE DIR FABRIC LIBRARY EXN-TUN
set -e
what=$1 dir=$2 fabric=$3 library=$4 tun=$5 peers=same-user

# The machine's own places are hidden: podman and crun keep locks and states in /dev/shm
# and /run, and crun gives the devices that a container has as its input and output to
# the container's user. Crun takes no mixture of both versions of cgroups.
if [ "$(id -u)" = 0 ]; then
	mount -t tmpfs -o mode=755 exnet /run
	mount -t tmpfs -o mode=755 exnet "$dir"
	mkdir -m 755 "$dir/dev"
	mkdir "$dir/dev/net" "$dir/dev/pts"
	mkdir -m 1777 "$dir/dev/shm"
	for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$dir/dev/${device%:*}" c 1 ${device#*:}; done
	mknod -m 666 "$dir/dev/tty" c 5 0
	mknod -m 666 "$dir/dev/net/tun" c 10 200
	mount -t devpts -o newinstance,ptmxmode=666 exnet "$dir/dev/pts"
	ln -s pts/ptmx "$dir/dev/ptmx"
	ln -s /proc/self/fd "$dir/dev/fd"
	mount --rbind "$dir/dev" /dev
	[ -e /sys/fs/cgroup/cgroup.controllers ] || { umount -R /sys/fs/cgroup; mount -t cgroup2 exnet /sys/fs/cgroup; }
	ip link set lo up
fi
case $what in rootless*)
	if [ "$(id -u)" = 0 ]; then
		user=7001
		echo "exnetuser:x:$user:$user::$dir:/bin/sh" >>/etc/passwd
		echo "exnetuser:x:$user:" >>/etc/group
		for file in subuid subgid; do echo "exnetuser:500000:65536" >>/etc/$file; done
		chown $user:$user "$dir" "$fabric"
		cd "$dir"
		export HOME="$dir" XDG_RUNTIME_DIR="$dir"
		exec setpriv --reuid=$user --regid=$user --clear-groups sh "$0" "$@"
	fi
esac

podman() {
	command podman --root "$dir/storage" --runroot "$dir/run" --tmpdir "$dir/tmp" --storage-driver vfs --cgroup-manager cgroupfs --events-backend file --log-level error "$@" </dev/null
}

# run NAME FLAG... -- COMMAND... starts a container by the recipe of docs/operations.md. The
# limits are below those of this process, which may be unable to raise them.
run() {
	name=$1
	shift
	flags=
	while [ "$1" != -- ]; do flags="$flags $1"; shift; done
	shift
	podman run -d --name "$name" --cgroups=disabled --ulimit nofile=1024:4096 --ulimit nproc=1024:4096 $flags \
		-v "$fabric":"$fabric" -v "$library":/usr/local/lib/libextds.so:ro \
		-e LD_PRELOAD=/usr/local/lib/libextds.so -e EXN_FABRIC="$fabric" -e EXN_PEERS=$peers exnet-redis "$@" >/dev/null
}
# ask, given HOST [PORT], asks redis there without end, once it answers.
ask='until redis-cli -h $0 -p ${1:-6379} ping >/dev/null 2>&1; do sleep 0.1; done; exec redis-benchmark -h $0 -p ${1:-6379} -c 5 -l -q -t get'
server() { run server --network=none "$@" -- redis-server --save '' --protected-mode no --bind 0.0.0.0; }
client() { run client --network=container:server "$@" -- sh -c "$ask" 127.0.0.1; }

# An image of what redis needs, and a shell.
image=$dir/image
mkdir -p "$image/proc" "$image/sys" "$image/dev" "$image/tmp" "$image/run" "$image/etc" "$image/usr/bin" "$image/usr/local/lib"
ln -s usr/bin "$image/bin"
for program in sh sleep redis-server redis-cli redis-benchmark; do
	path=$(command -v $program)
	cp -L "$path" "$image/usr/bin/$program"
	for file in $(ldd "$path" | grep -o '/[^ ]*'); do
		mkdir -p "$image/${file%/*}"
		cp -L "$file" "$image$file"
	done
done
tar -c -f "$dir/image.tar" -C "$image" .
podman import -q "$dir/image.tar" exnet-redis >/dev/null

# own gives a container exn0: NAME NODE ADDRESS, from outside, or inside its namespaces.
own() {
	process=$(podman inspect -f '{{.State.Pid}}' "$1")
	case $4 in
	inside) nsenter -t "$process" -U -n -S 0 -G 0 "$tun" up --fabric "$fabric" --node "$2" --addr "$3" & ;;
	outside) "$tun" up --netns "/proc/$process/ns/net" --fabric "$fabric" --node "$2" --addr "$3" & ;;
	esac
}
# joined: two containers with networks of their own, and with these flags.
joined() {
	how=$1
	shift
	server "$@"
	own server 8 10.2.0.8/24 $how
	run client --network=none "$@" -- sh -c "$ask" 10.2.0.8
	own client 7 10.2.0.7/24 $how
}
# plug puts a container on a bridge: NAME ADDRESS.
plug() {
	process=$(podman inspect -f '{{.State.Pid}}' "$1")
	ip link add "to-$1" type veth peer name eth0 netns "$process"
	ip link set "to-$1" master bridge0 up
	nsenter -t "$process" -n sh -c "ip address add $2 dev eth0 && ip link set eth0 up"
}
# bridged: two containers with networks of their own, on one bridge: FLAGS of the server, and of the client, and where that asks.
bridged() {
	ip link add bridge0 type bridge
	ip address add 10.3.0.1/24 dev bridge0
	ip link set bridge0 up
	"$tun" bridge --fabric "$fabric" bridge0 &
	server $1
	plug server 10.3.0.8/24
	run client --network=none $2 -- sh -c "$ask" ${3:-10.3.0.8}
	plug client 10.3.0.7/24
}
mapped="--uidmap 0:200000:65536 --gidmap 0:0:1000"
group() { chown 0:777 "$fabric"; chmod 2770 "$fabric"; peers=group; }

case $what in
read-only) server --read-only; client --read-only ;;
no-capabilities) for end in server client; do $end --cap-drop all --security-opt no-new-privileges; done ;;
host)
	run server --network=host -- redis-server --save ''
	LD_PRELOAD=$library EXN_FABRIC=$fabric sh -c "$ask" 127.0.0.1 >/dev/null &
	;;
users) group; server --user 1001 --group-add 777; client --user 1002 --group-add 777 ;;
stranger) group; server --user 1001 --group-add 777; client --user 1002 ;;
mapped) chown 200000 "$fabric"; server $mapped; client $mapped ;;
mapped-otherwise) group; server --user 0:777; client --user 0:777 $mapped ;;
joined) joined outside ;;
mapped-joined) chown 200000 "$fabric"; joined inside $mapped ;;
bridged) bridged ;;
published) # as with podman run -p 6380:6379
	echo 1 >/proc/sys/net/ipv4/ip_forward
	nft 'add table ip nat; add chain ip nat in { type nat hook prerouting priority -100; }; add chain ip nat out { type nat hook postrouting priority 100; }
		add rule ip nat in fib daddr type local tcp dport 6380 dnat to 10.3.0.8:6379; add rule ip nat out ip saddr 10.3.0.0/24 ct status dnat masquerade'
	bridged "" "" "10.3.0.1 6380"
	;;
users-bridged) group; bridged "--user 1001 --group-add 777" "--user 1002 --group-add 777" ;;
rootless) server; client ;;
rootless-joined) joined inside ;;
*) echo "no case $what" >&2; exit 2 ;;
esac
echo up
cat >/dev/null
