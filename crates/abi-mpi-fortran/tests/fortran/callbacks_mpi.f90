! Functions of the program by the module mpi, and the attributes of MPI 1.
module functions
  use mpi
  implicit none
  integer :: handled = 0, deleted = 0
contains
  subroutine note_error(comm, error_code)
    integer :: comm, error_code
    if (comm == MPI_COMM_SELF) handled = error_code
  end subroutine

  subroutine old_copy(comm, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    integer :: comm, keyval, extra_state, attribute_val_in, attribute_val_out, ierror
    logical :: flag
    attribute_val_out = attribute_val_in - extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine old_delete(comm, keyval, attribute_val, extra_state, ierror)
    integer :: comm, keyval, attribute_val, extra_state, ierror
    deleted = attribute_val
    ierror = MPI_SUCCESS
  end subroutine
end module

program callbacks
  use functions
  implicit none
  integer :: ierror, class, handler, key, value, copy, op, type, datatype_key, bytes
  integer(kind=MPI_ADDRESS_KIND) :: wide, base
  integer :: numbers(2)
  integer, pointer :: nothing(:) => null()
  logical :: flag
  external :: least
  call MPI_Init(ierror)
  call MPI_Comm_create_errhandler(note_error, handler, ierror)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, handler, ierror)
  call MPI_Send(class, -1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, ierror)
  call MPI_Error_class(handled, class, ierror)
  if (class /= MPI_ERR_COUNT) error stop 'an error handler'

  call MPI_Op_create(least, .true., op, ierror)
  numbers = [3, 1]
  call MPI_Reduce_local(numbers(2), numbers(1), 1, MPI_INTEGER, op, ierror)
  if (numbers(1) /= 1) error stop 'an operator'
  call MPI_Op_free(op, ierror)

  ! What is not significant for an operation in place is not read: there is nothing behind the pointer.
  call MPI_Alltoallw(MPI_IN_PLACE, nothing, nothing, nothing, numbers, [1], [0], [MPI_INTEGER], MPI_COMM_SELF, ierror)
  if (ierror /= MPI_SUCCESS .or. any(numbers /= [1, 1])) error stop 'an operation in place'

  call MPI_Keyval_create(old_copy, old_delete, key, 2, ierror)
  call MPI_Attr_put(MPI_COMM_SELF, key, -40, ierror)
  call MPI_Attr_get(MPI_COMM_SELF, key, value, flag, ierror)
  if (.not. flag .or. value /= -40) error stop 'an attribute of MPI 1'
  call MPI_Comm_get_attr(MPI_COMM_SELF, key, wide, flag, ierror)
  if (.not. flag .or. wide /= -40) error stop 'an attribute of MPI 1, wide'
  call MPI_Comm_dup(MPI_COMM_SELF, copy, ierror)
  call MPI_Attr_get(copy, key, value, flag, ierror)
  if (.not. flag .or. value /= -42) error stop 'a copied attribute of MPI 1'
  call MPI_Comm_free(copy, ierror)
  if (deleted /= -42) error stop 'a deleted attribute of MPI 1'
  call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
  if (.not. flag .or. value < 32767) error stop 'a predefined attribute'

  call MPI_Type_dup(MPI_INTEGER, type, ierror)
  call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, datatype_key, 0_MPI_ADDRESS_KIND, ierror)
  call MPI_Type_set_attr(type, datatype_key, 17_MPI_ADDRESS_KIND, ierror)
  call MPI_Type_dup(type, copy, ierror)
  call MPI_Type_get_attr(copy, datatype_key, wide, flag, ierror)
  if (.not. flag .or. wide /= 17) error stop 'an attribute of a datatype'
  call MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, datatype_key, 0_MPI_ADDRESS_KIND, ierror)
  call MPI_Type_set_attr(type, datatype_key, 17_MPI_ADDRESS_KIND, ierror)
  call MPI_Type_free(copy, ierror)
  call MPI_Type_dup(type, copy, ierror)
  call MPI_Type_get_attr(copy, datatype_key, wide, flag, ierror)
  if (flag) error stop 'an attribute that is not copied'

  ! An address as an integer, as programs with Cray pointers have it.
  call MPI_Alloc_mem(8_MPI_ADDRESS_KIND, MPI_INFO_NULL, base, ierror)
  if (base == 0) error stop 'no memory'
  call MPI_Sizeof(base, bytes, ierror)
  if (bytes /= 8) error stop 'the size of an address'
  call MPI_Finalize(ierror)
  print '(a)', 'all functions were called'
end program

subroutine least(invec, inoutvec, len, datatype)
  use mpi
  implicit none
  integer :: len, datatype, invec(len), inoutvec(len)
  if (datatype /= MPI_INTEGER) error stop 'an operator gets another type'
  inoutvec = min(invec, inoutvec)
end subroutine
