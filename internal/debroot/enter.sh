# Runs a command with the packages of a root in place. It is the first process
# of a new mount namespace, and becomes the command.
#
#	$1	root of the unpacked packages
#	$2	an empty directory to mount private memory on
#	$3...	the command; empty: none, to see that it can be done
set -e
root=$1 memory=$2
shift 2

mount -t tmpfs -o mode=755 exnet "$memory"
for top in etc var usr; do # usr last: those of another release may not suit the programs used here
	private=$memory/$top
	mkdir -m 755 "$private" "$private/upper" "$private/work"
	if [ $top = etc ]; then
		# Containers mount these files one by one, which an overlay does not show.
		for file in hosts resolv.conf hostname; do
			[ ! -f /etc/$file ] || cp -Lp /etc/$file "$private/upper/"
		done
	fi
	mount -t overlay -o "lowerdir=$root/$top:/$top,upperdir=$private/upper,workdir=$private/work" exnet /$top
done
[ -z "$1" ] || exec "$@"
