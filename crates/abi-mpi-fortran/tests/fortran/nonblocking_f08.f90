! Values that nonblocking calls have received, in a procedure whose variables a compiler may keep in registers.
program nonblocking
  use mpi_f08
  implicit none
  call MPI_Init()
  call receive()
  call MPI_Finalize()
contains
  subroutine receive()
    integer :: one, two(2), sent
    type(MPI_Request) :: requests(2)
    call MPI_Irecv(one, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, requests(1))
    call MPI_Irecv(two, 2, MPI_INTEGER, 0, 1, MPI_COMM_SELF, requests(2))
    one = 1
    two = 2
    sent = 7
    call MPI_Send(sent, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF)
    call MPI_Send([8, 9], 2, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    sent = 100 * one + 10 * two(1) + two(2)
    print '(a, i0)', 'received ', sent
  end subroutine
end program
