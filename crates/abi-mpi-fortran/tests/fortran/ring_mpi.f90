! A ring by the module mpi: a token goes around, and each rank adds its number.
program ring
  use mpi
  implicit none
  integer :: rank, size, token, ierror, status(MPI_STATUS_SIZE)
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  token = 0
  if (rank > 0) then
    call MPI_Recv(token, 1, MPI_INTEGER, rank - 1, 5, MPI_COMM_WORLD, status, ierror)
    if (status(MPI_SOURCE) /= rank - 1 .or. status(MPI_TAG) /= 5) error stop 'a wrong status'
  end if
  token = token + rank
  call MPI_Send(token, 1, MPI_INTEGER, modulo(rank + 1, size), 5, MPI_COMM_WORLD, ierror)
  if (rank == 0) then
    call MPI_Recv(token, 1, MPI_INTEGER, size - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    print '(a, i0)', 'the token is ', token
  end if
  call MPI_Finalize(ierror)
end program
