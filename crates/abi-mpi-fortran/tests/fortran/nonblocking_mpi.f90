! As nonblocking_f08.f90, by the module mpi.
program nonblocking
  use mpi
  implicit none
  integer :: ierror
  call MPI_Init(ierror)
  call receive()
  call MPI_Finalize(ierror)
contains
  subroutine receive()
    integer :: one, two(2), sent, requests(2)
    call MPI_Irecv(one, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, requests(1), ierror)
    call MPI_Irecv(two, 2, MPI_INTEGER, 0, 1, MPI_COMM_SELF, requests(2), ierror)
    one = 1
    two = 2
    sent = 7
    call MPI_Send(sent, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, ierror)
    call MPI_Send([8, 9], 2, MPI_INTEGER, 0, 1, MPI_COMM_SELF, ierror)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
    sent = 100 * one + 10 * two(1) + two(2)
    print '(a, i0)', 'received ', sent
  end subroutine
end program
