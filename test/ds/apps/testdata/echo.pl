# An echo server that forks for each connection, and a client.
#
#	echo.pl serve PORT
#	echo.pl talk  PORT ROUNDS
#
# A message is its length in four bytes and as many more.
use strict; use warnings;
use IO::Socket::INET; use Socket qw(IPPROTO_TCP TCP_NODELAY); use Digest::SHA;
my ($what, $port, $rounds) = @ARGV;
$SIG{CHLD} = 'IGNORE';

sub all { # by sysread, which is read(2)
    my ($s, $n) = @_;
    my $b = '';
    while (length $b < $n) { (sysread($s, $b, $n - length $b, length $b) or return) }
    return $b;
}
sub put {
    my ($s, $b) = @_;
    for (my $at = 0; $at < length $b;) { $at += syswrite($s, $b, length($b) - $at, $at) // die "write: $!" }
}

if ($what eq 'serve') {
    my $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 20, ReuseAddr => 1) or die "listen: $!";
    while (1) {
        my $s = $l->accept or next;
        my $pid = fork;
        if ($pid) { close $s; next }
        while (defined(my $head = all($s, 4))) { put($s, $head . all($s, unpack 'N', $head)) }
        exit;
    }
}
my @sizes = (1, 60, 120, 481, 5000, 70000, 300000);
for my $connection (1 .. 4) {
    my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "connect: $!";
    my $digest = Digest::SHA->new(256);
    for my $i (1 .. $rounds) {
        my $n = $sizes[($i * 7 + $connection) % @sizes];
        my $b = substr(join('', map { chr(($_ * $i) % 251) } 1 .. 1000) x 300, 0, $n);
        if (fork) { # neither side reads all before it answers
            my $got = all($s, 4 + $n) // die "end in round $i";
            die "round $i differs" unless $got eq pack('N', $n) . $b;
            $digest->add($got);
            wait;
        } else { put($s, pack('N', $n) . $b); require POSIX; POSIX::_exit(0) }
    }
    print $digest->hexdigest, "\n";
}
