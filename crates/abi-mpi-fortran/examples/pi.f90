! Pi by the module mpi_f08: each rank adds its part of a sum; rank 0 has the result in place.
program pi
  use mpi_f08
  implicit none
  integer, parameter :: steps = 100000
  integer :: rank, size, step
  double precision :: x, sum
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  sum = 0
  do step = rank, steps - 1, size
    x = (step + 0.5d0) / steps
    sum = sum + 4 / (1 + x * x)
  end do
  if (rank == 0) then
    call MPI_Reduce(MPI_IN_PLACE, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
    print '(a, f10.8)', 'pi is ', sum / steps
  else
    call MPI_Reduce(sum, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
  end if
  call MPI_Finalize()
end program
