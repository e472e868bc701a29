! What the modules mpi and mpi_f08 share: constants, types, and the addresses by which the library knows a special argument. Their
! storage is in libmpi_abi_fortran.
module nicety_mpi_base
  use, intrinsic :: iso_c_binding, only : c_char, c_int, c_ptr
  implicit none
  public
! CONSTANTS
  integer(c_int), bind(C, name="mpi_fortran_bottom_") :: MPI_BOTTOM
  integer(c_int), bind(C, name="mpi_fortran_in_place_") :: MPI_IN_PLACE
  integer(c_int), bind(C, name="mpi_fortran_buffer_automatic_"), target :: MPI_BUFFER_AUTOMATIC
  integer(c_int), bind(C, name="mpi_fortran_unweighted_") :: MPI_UNWEIGHTED(1)
  integer(c_int), bind(C, name="mpi_fortran_weights_empty_") :: MPI_WEIGHTS_EMPTY(1)
  integer(c_int), bind(C, name="mpi_fortran_errcodes_ignore_") :: MPI_ERRCODES_IGNORE(1)
  character(kind=c_char), bind(C, name="mpi_fortran_argv_null_") :: MPI_ARGV_NULL(1)
  character(kind=c_char), bind(C, name="mpi_fortran_argvs_null_") :: MPI_ARGVS_NULL(1, 1)

  type, bind(C) :: MPI_Status
    integer(c_int) :: MPI_SOURCE
    integer(c_int) :: MPI_TAG
    integer(c_int) :: MPI_ERROR
    integer(c_int), private :: internal(5)
  end type

! TYPES
  ! A descriptor has the length of an element.
  interface MPI_Sizeof
    subroutine nicety_sizeof(x, size, ierror) bind(C, name="nicety_sizeof_")
      import
      type(*), dimension(..), intent(in) :: x
      integer(c_int), intent(out) :: size
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface
  interface PMPI_Sizeof
    procedure nicety_sizeof
  end interface
end module
