# Two ranks send messages of many sizes to and fro and check them.
#
#	mpi.py ROUNDS
import hashlib, random, sys
from mpi4py import MPI

world, rounds = MPI.COMM_WORLD, int(sys.argv[1])
r, digest = random.Random(1), hashlib.sha256()
for i in range(rounds):
    sent = r.randbytes(r.choice([0, 1, 64, 1000, 65000, 1 << 20]))
    got = bytearray(len(sent))
    if world.rank == 0:
        world.Send([sent, MPI.BYTE], 1, i)
        world.Recv([got, MPI.BYTE], 1, i)
    else:
        world.Recv([got, MPI.BYTE], 0, i)
        world.Send([got, MPI.BYTE], 0, i)
    assert got == sent, f"rank {world.rank}, message {i}"
    digest.update(got)
# Both at once.
out, into = bytearray(random.Random(world.rank).randbytes(4 << 20)), bytearray(4 << 20)
world.Sendrecv([out, MPI.BYTE], 1 - world.rank, 0, [into, MPI.BYTE], 1 - world.rank, 0)
assert into == random.Random(1 - world.rank).randbytes(4 << 20)
if world.rank == 0:
    print(digest.hexdigest())
