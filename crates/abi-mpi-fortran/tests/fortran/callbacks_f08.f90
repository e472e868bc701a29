! Functions of the program by mpi_f08: operators, error handlers, attributes, generalized requests and data representations.
module functions
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: handled = 0, handler_calls = 0, deleted = 0, queried = 0, freed = 0, cancelled = 0
  type(MPI_Comm) :: handled_comm
contains
  subroutine twice_the_sum(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: one(:), other(:)
    if (datatype /= MPI_INTEGER) error stop 'an operator gets another type'
    call c_f_pointer(invec, one, [len])
    call c_f_pointer(inoutvec, other, [len])
    other = 2 * (one + other)
  end subroutine

  subroutine large_product(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer(kind=MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    real, pointer :: one(:), other(:)
    if (datatype /= MPI_REAL) error stop 'an operator gets another type'
    call c_f_pointer(invec, one, [len])
    call c_f_pointer(inoutvec, other, [len])
    other = one * other
  end subroutine

  subroutine note_error(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    handled = error_code
    handler_calls = handler_calls + 1
    handled_comm = comm
  end subroutine

  subroutine copy_and_add(comm, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    attribute_val_out = attribute_val_in + extra_state
    flag = comm == MPI_COMM_SELF
    ierror = MPI_SUCCESS
  end subroutine

  subroutine count_deleted(comm, keyval, attribute_val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deleted = deleted + int(attribute_val)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine query(extra_state, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    queried = int(extra_state)
    status%MPI_SOURCE = 3
    status%MPI_TAG = 4
    call MPI_Status_set_elements(status, MPI_INTEGER, 5)
    call MPI_Status_set_cancelled(status, cancelled /= 0)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine release(extra_state, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    if (.not. complete) cancelled = int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine extent_of(datatype, extent, extra_state, ierror)
    type(MPI_Datatype) :: datatype
    integer(kind=MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
    extent = 4
    ierror = merge(MPI_SUCCESS, MPI_ERR_TYPE, datatype == MPI_INTEGER .and. extra_state == 11)
  end subroutine

  ! In the file an element is its negative.
  subroutine negate(userbuf, datatype, count, filebuf, position, extra_state, ierror)
    type(c_ptr), value :: userbuf, filebuf
    type(MPI_Datatype) :: datatype
    integer :: count
    integer(kind=MPI_OFFSET_KIND) :: position
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    integer, pointer :: here(:), there(:)
    call c_f_pointer(userbuf, here, [position + count])
    call c_f_pointer(filebuf, there, [count])
    there = -here(position + 1:)
    ierror = merge(MPI_SUCCESS, MPI_ERR_TYPE, datatype == MPI_INTEGER .and. extra_state == 11)
  end subroutine
end module

program callbacks
  use functions
  implicit none
  integer :: ierror, number, numbers(2), results(2), rank, size, i
  real :: x, y
  logical :: flag
  integer(kind=MPI_ADDRESS_KIND) :: value
  type(MPI_Op) :: op, large, other
  type(MPI_Errhandler) :: handler, same
  type(MPI_Comm) :: copy
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  type(MPI_File) :: file
  type(MPI_Datatype) :: copy_type, file_type
  character(len=200) :: path
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)

  call MPI_Op_create(twice_the_sum, .true., op)
  call MPI_Op_create_c(large_product, .true., large)
  numbers = [3, 4]
  results = [10, 20]
  call MPI_Reduce_local(numbers, results, 2, MPI_INTEGER, op)
  if (any(results /= [26, 48])) error stop 'an operator'
  x = 3
  y = 5
  call MPI_Reduce_local(x, y, 1_MPI_COUNT_KIND, MPI_REAL, large)
  if (y /= 15) error stop 'a large operator'
  call MPI_Op_commutative(op, flag)
  if (.not. flag) error stop 'it is commutative'
  if (size == 2) then
    call MPI_Allreduce(rank + 1, number, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
    if (number /= 6) error stop 'an operator of two ranks'
  end if
  ! Operators with the same function are as many as there is memory for.
  do i = 1, 1000
    call MPI_Op_create(twice_the_sum, .false., other, ierror)
    if (ierror /= MPI_SUCCESS) error stop 'too few operators'
    call MPI_Op_free(other)
  end do
  if (other /= MPI_OP_NULL) error stop 'a freed operator'

  call MPI_Comm_create_errhandler(note_error, handler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, handler)
  call MPI_Comm_get_errhandler(MPI_COMM_SELF, same)
  if (same /= handler) error stop 'another handle of an error handler'
  call MPI_Errhandler_free(same)
  call MPI_Send(number, 1, MPI_INTEGER, 5, 0, MPI_COMM_SELF, ierror)
  call MPI_Error_class(handled, number)
  if (number /= MPI_ERR_RANK .or. handled_comm /= MPI_COMM_SELF) error stop 'an error handler'
  ! The binding looks up the number of dimensions, which has to cause no second error.
  number = handler_calls
  call MPI_Cart_sub(MPI_COMM_SELF, [.true.], copy, ierror)
  if (ierror == MPI_SUCCESS .or. handler_calls /= number + 1) error stop 'one error of one call'
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL)
  call MPI_Errhandler_free(handler)

  call MPI_Comm_create_keyval(copy_and_add, count_deleted, number, 7_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_SELF, number, 100_MPI_ADDRESS_KIND)
  call MPI_Comm_get_attr(MPI_COMM_SELF, number, value, flag)
  if (.not. flag .or. value /= 100) error stop 'an attribute'
  call MPI_Comm_dup(MPI_COMM_SELF, copy)
  call MPI_Comm_get_attr(copy, number, value, flag)
  if (.not. flag .or. value /= 107) error stop 'a copied attribute'
  call MPI_Comm_free(copy)
  if (deleted /= 107) error stop 'a deleted attribute'
  call MPI_Comm_set_attr(MPI_COMM_SELF, number, 1_MPI_ADDRESS_KIND)
  call MPI_Comm_delete_attr(MPI_COMM_SELF, number)
  if (deleted /= 208) error stop 'attributes that were replaced and deleted'
  call MPI_Comm_free_keyval(number)
  if (number /= MPI_KEYVAL_INVALID) error stop 'a freed key'
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, number, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_SELF, number, -5_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(MPI_COMM_SELF, copy)
  call MPI_Comm_get_attr(copy, number, value, flag)
  if (.not. flag .or. value /= -5) error stop 'a duplicated attribute'
  call MPI_Comm_free(copy)

  call MPI_Grequest_start(query, release, cancel, 9_MPI_ADDRESS_KIND, request)
  call MPI_Cancel(request)
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  if (queried /= 9 .or. freed /= 9 .or. cancelled /= 9) error stop 'functions of a request'
  call MPI_Get_count(status, MPI_INTEGER, number)
  call MPI_Test_cancelled(status, flag)
  if (number /= 5 .or. status%MPI_TAG /= 4 .or. .not. flag) error stop 'the status of a request'

  call MPI_Register_datarep('negative', MPI_CONVERSION_FN_NULL, negate, extent_of, 11_MPI_ADDRESS_KIND)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file)
  call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'negative', MPI_INFO_NULL)
  numbers = [5, 6]
  call MPI_File_write_at_all(file, 2_MPI_OFFSET_KIND * rank, numbers, 2, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_read_at_all(file, 2_MPI_OFFSET_KIND * rank, results, 2, MPI_INTEGER, status)
  ! It was written by a function, and is read as it is.
  if (any(results /= [-5, -6])) error stop 'a data representation'
  path = 'rubbish'
  call MPI_File_get_view(file, value, copy_type, file_type, path)
  if (path /= 'negative') error stop 'the name of a data representation'
  call MPI_File_close(file)
  if (rank == 0) print '(a)', 'all functions were called'
  call MPI_Finalize()
end program
