# Several ranks send to their neighbours in a ring, to all others and by collective
# calls, at sizes on both sides of what the transport sends at once, and check all.
#
#	ranks.py ROUNDS
import hashlib, random, sys
from mpi4py import MPI

world, rounds = MPI.COMM_WORLD, int(sys.argv[1])
me, n = world.rank, world.size
digest = hashlib.sha256()


def body(rank, i, size):
    return random.Random(rank * 1000003 + i).randbytes(size)


sizes = [0, 1, 64, 1000, 65000, 300000]
for i in range(rounds):
    size = sizes[i % len(sizes)]
    # To the right without waiting, from the left.
    got = bytearray(size)
    requests = [world.Irecv([got, MPI.BYTE], (me - 1) % n, i), world.Isend([body(me, i, size), MPI.BYTE], (me + 1) % n, i)]
    MPI.Request.Waitall(requests)
    assert got == body((me - 1) % n, i, size), f"rank {me}, round {i}"
    digest.update(got)
    # One to all, all to one, each to each.
    all = bytearray(body(i % n, i, size))
    if me != i % n:
        all = bytearray(size)
    world.Bcast([all, MPI.BYTE], i % n)
    assert all == body(i % n, i, size)
    assert world.allreduce(me + i) == n * (n - 1) // 2 + n * i
    gathered = bytearray(size * n) if me == 0 else None
    world.Gather([body(me, i, size), MPI.BYTE], [gathered, MPI.BYTE] if me == 0 else None, 0)
    if me == 0:
        assert gathered == b"".join(body(r, i, size) for r in range(n))
        digest.update(gathered)
    parts = bytearray(size * n)
    world.Alltoall([b"".join(body(me * n + r, i, size) for r in range(n)), MPI.BYTE], [parts, MPI.BYTE])
    assert parts == b"".join(body(r * n + me, i, size) for r in range(n))
    digest.update(parts)
# As the tests of Ohio State do: a window of messages, then one back.
if me < 2:
    for size in [1, 4096, 1 << 20]:
        for i in range(5):
            window = [bytearray(size) for _ in range(16)]
            if me == 0:
                MPI.Request.Waitall([world.Isend([body(7, k, size), MPI.BYTE], 1, k) for k in range(16)])
                assert world.recv(source=1, tag=99) == size
            else:
                MPI.Request.Waitall([world.Irecv([w, MPI.BYTE], 0, k) for k, w in enumerate(window)])
                assert [bytes(w) for w in window] == [body(7, k, size) for k in range(16)]
                world.send(size, 0, 99)
every = world.gather(digest.hexdigest(), 0)
if me == 0:
    print("\n".join(every))
