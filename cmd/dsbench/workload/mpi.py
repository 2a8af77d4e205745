# Two ranks of Open MPI, and what the figures 5.30 to 5.32 of the thesis show: half of a round
# trip in ns, bytes a second, or messages a second. SIZE is of a message, 8 bytes or more.
#
#	mpi.py latency|bandwidth|rate SIZE SECONDS
import sys, time
from mpi4py import MPI

world = MPI.COMM_WORLD
what, size, seconds, other = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), 1 - world.rank
at_once = {"latency": 1, "bandwidth": 16, "rate": 64}[what]
sent, got = bytearray(size), bytearray(size)
out, into, end = [sent, MPI.BYTE], [got, MPI.BYTE], [bytearray(1), MPI.BYTE]


def turn(number):
    """One message there and one back, or many there and one back."""
    sent[0:8] = number.to_bytes(8, "little")
    if world.rank == 0:
        if at_once == 1:
            world.Send(out, other)
            world.Recv(into, other)
            assert got[0:8] == sent[0:8], "an answer is not what was sent"
        else:
            MPI.Request.Waitall([world.Isend(out, other) for _ in range(at_once)])
            world.Recv(end, other)
    elif at_once == 1:
        world.Recv(into, other)
        assert got[0:8] == sent[0:8], "a message is not what is due"
        world.Send(into, other)
    else:
        MPI.Request.Waitall([world.Irecv(into, other) for _ in range(at_once)])
        assert got[0:8] == sent[0:8], "a message is not what is due"
        world.Send(end, other)


def turns(first, n):
    begin = time.perf_counter()
    for i in range(n):
        turn(first + i)
    return time.perf_counter() - begin


n, done = 10, 0
while True:  # also the warm-up
    took = world.bcast(turns(done, n))
    done += n
    if took > seconds / 4:
        break
    n *= 4
n = max(1, int(n * seconds / took))
each, times = max(1, n // 100), []
for first in range(0, n, each):
    times.append(turns(done + first, each) / each)
if world.rank == 0:
    per = sorted(times)[len(times) // 2]
    print({"latency": per / 2 * 1e9, "bandwidth": at_once * size / per, "rate": at_once / per}[what])
