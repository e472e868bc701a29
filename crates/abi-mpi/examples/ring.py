"""A token goes round all ranks once; each adds one to it."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
following, last = (rank + 1) % size, (rank - 1) % size
if rank == 0:
    token = world.sendrecv(1, dest=following, source=last)
else:
    token = world.recv(source=last) + 1
    world.send(token, dest=following)
print(f"rank {rank} of {size}: the token is {token}")
