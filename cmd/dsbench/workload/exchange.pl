# exchange.pl connections|requests PORT N
use strict;
use IO::Socket::INET;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID);
my ($what, $port, $n) = @ARGV;

sub connection {
    return IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port, Proto => "tcp") || die "connect: $!";
}

sub request {
    my ($s) = @_;
    syswrite($s, "PING\r\n") == 6 || die "write: $!";
    sysread($s, my $answer, 64) == 7 || die "read: $!";
}

my ($begin, $used) = (clock_gettime(CLOCK_MONOTONIC), clock_gettime(CLOCK_PROCESS_CPUTIME_ID));
if ($what eq "connections") {
    for (1 .. $n) {
        my $s = connection();
        request($s);
        close($s);
    }
} else {
    my $s = connection();
    request($s) for 1 .. $n;
}
printf "%.9f %.9f\n", clock_gettime(CLOCK_MONOTONIC) - $begin, clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $used;
