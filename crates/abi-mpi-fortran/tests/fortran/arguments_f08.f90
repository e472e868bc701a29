! Arguments of each kind by mpi_f08, in one process that sends to itself: strings, LOGICAL, statuses, indices, handles, large counts,
! special addresses, derived types and a window.
module checks
  implicit none
contains
  subroutine check(is_right, what)
    logical, intent(in) :: is_right
    character(len=*), intent(in) :: what
    if (.not. is_right) then
      print '(2a)', 'wrong: ', what
      error stop 1
    end if
  end subroutine
end module

program arguments
  use checks
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  call MPI_Init()
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
  call strings()
  call logicals()
  call statuses_and_indices()
  call types_and_addresses()
  call windows()
  call buffers()
  call sizes()
  call MPI_Finalize()
  print '(a)', 'all arguments are right'
contains
  subroutine strings()
    character(len=MPI_MAX_OBJECT_NAME) :: name
    character(len=6) :: value, short
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    type(MPI_Info) :: info
    integer :: length, number, ierror
    logical :: flag
    call MPI_Comm_set_name(MPI_COMM_SELF, 'myself  ')
    name = 'rubbish'
    call MPI_Comm_get_name(MPI_COMM_SELF, name, length)
    call check(length == 6 .and. name == 'myself', 'a name is trimmed and padded')
    call MPI_Comm_get_name(MPI_COMM_SELF, short(1:3), length)
    call check(short(1:3) == 'mys' .and. length == 6, 'a name is cut')
    call MPI_Get_processor_name(host, length)
    call check(len_trim(host) == length, 'the host has a name')
    call MPI_Info_create(info)
    call MPI_Info_set(info, ' key ', ' the value ')
    value = 'xxxxxx'
    call MPI_Info_get(info, 'key', 3, value, flag)
    call check(flag .and. value == 'the', 'a part of a value')
    call MPI_Info_get(info, 'other', 3, value, flag)
    call check(.not. flag, 'no value')
    length = 0
    call MPI_Info_get_string(info, 'key', length, value, flag)
    call check(flag .and. length == 9, 'the length of a value')
    length = 6
    call MPI_Info_get_string(info, 'key', length, value, flag)
    call check(flag .and. value == 'the va' .and. length == 9, 'a value that is cut')
    call MPI_Info_get_nkeys(info, number)
    call MPI_Info_get_nthkey(info, 0, name)
    call check(number == 1 .and. name == 'key', 'a key')
    call MPI_Info_free(info)
    call check(info == MPI_INFO_NULL, 'a freed handle')
    call MPI_Comm_rank(MPI_COMM_NULL, number, ierror)
    call MPI_Error_class(ierror, number)
    call check(number == MPI_ERR_COMM, 'an error has its class')
    name = ' '
    call MPI_Error_string(ierror, name, length)
    call check(len_trim(name) > 10, 'an error has a text')
  end subroutine

  subroutine logicals()
    type(MPI_Comm) :: grid, rest
    logical :: periods(2), flag
    integer :: dims(2), coords(2), kind
    call MPI_Cart_create(MPI_COMM_SELF, 2, [1, 1], [.true., .false.], .false., grid)
    call MPI_Cart_get(grid, 2, dims, periods, coords)
    call check(periods(1) .and. .not. periods(2) .and. all(dims == 1), 'LOGICAL arrays')
    call MPI_Cart_sub(grid, [.true., .false.], rest)
    call MPI_Cartdim_get(rest, kind)
    call check(kind == 1, 'dimensions that remain')
    call MPI_Topo_test(rest, kind)
    call check(kind == MPI_CART, 'a topology')
    call MPI_Comm_test_inter(grid, flag)
    call check(flag .eqv. .false., 'a LOGICAL result')
    call MPI_Comm_free(rest)
    call MPI_Comm_free(grid)
  end subroutine

  subroutine statuses_and_indices()
    integer :: sent(3), got(3), i, index, count, indices(3)
    type(MPI_Request) :: requests(3)
    type(MPI_Status) :: status, statuses(3)
    integer :: old(MPI_STATUS_SIZE), ierror
    type(MPI_Request) :: status_request
    logical :: flag
    sent = [10, 20, 30]
    got = 0
    do i = 1, 3
      call MPI_Irecv(got(i), 1, MPI_INTEGER, 0, i, MPI_COMM_SELF, requests(i))
    end do
    call MPI_Testany(3, requests, index, flag, status)
    call check(.not. flag, 'nothing has arrived')
    call MPI_Send(sent(2), 1, MPI_INTEGER, 0, 2, MPI_COMM_SELF)
    call MPI_Waitany(3, requests, index, status)
    call check(index == 2 .and. got(2) == 20 .and. status%MPI_TAG == 2, 'an index counts from 1')
    call check(requests(2) == MPI_REQUEST_NULL .and. requests(1) /= MPI_REQUEST_NULL, 'a request that is complete')
    call MPI_Get_count(status, MPI_INTEGER, count)
    call check(count == 1, 'a count of a status')
    call MPI_Status_f082f(status, old)
    call check(old(MPI_TAG) == 2, 'a status as integers')
    call MPI_Send(sent(3), 1_MPI_COUNT_KIND, MPI_INTEGER, 0, 3, MPI_COMM_SELF)
    call MPI_Waitsome(3, requests, count, indices, statuses)
    call check(count == 1 .and. indices(1) == 3 .and. statuses(1)%MPI_TAG == 3, 'indices count from 1')
    call MPI_Send(sent(1), 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
    call check(all(got == sent) .and. all([(requests(i) == MPI_REQUEST_NULL, i = 1, 3)]), 'all have arrived')
    call MPI_Waitany(3, requests, index, MPI_STATUS_IGNORE)
    call check(index == MPI_UNDEFINED, 'no index')
    ! A message that is too long: the request is complete, with an error.
    call MPI_Irecv(got, 1, MPI_INTEGER, 0, 4, MPI_COMM_SELF, requests(1))
    call MPI_Send(sent, 2, MPI_INTEGER, 0, 4, MPI_COMM_SELF)
    flag = .false.
    call MPI_Test(requests(1), flag, status, ierror)
    call MPI_Error_class(ierror, index)
    call check(flag .and. index == MPI_ERR_TRUNCATE .and. requests(1) == MPI_REQUEST_NULL, 'a request that has failed')
    ! A handle that no call accepts stays as it is.
    status_request%MPI_VAL = -77
    call MPI_Wait(status_request, MPI_STATUS_IGNORE, ierror)
    call check(ierror /= MPI_SUCCESS .and. status_request%MPI_VAL == -77, 'an invalid handle')
  end subroutine

  subroutine types_and_addresses()
    type :: point
      sequence
      double precision :: x
      integer :: n
    end type
    type(point) :: from(2), into(2)
    type(MPI_Datatype) :: one, all, types(2)
    integer(kind=MPI_ADDRESS_KIND) :: places(2), lb, extent
    integer :: matrix(4, 4), row(4), i, combiner, integers, addresses, datatypes
    call MPI_Get_address(from(1)%x, places(1))
    call MPI_Get_address(from(1)%n, places(2))
    types = [MPI_DOUBLE_PRECISION, MPI_INTEGER]
    call MPI_Type_create_struct(2, [1, 1], [0_MPI_ADDRESS_KIND, MPI_Aint_diff(places(2), places(1))], types, one)
    call MPI_Type_create_resized(one, 0_MPI_ADDRESS_KIND, int(storage_size(from) / 8, MPI_ADDRESS_KIND), all)
    call MPI_Type_commit(all)
    call MPI_Type_get_extent(all, lb, extent)
    call check(lb == 0 .and. extent == 16, 'an extent')
    from = [point(1.5d0, 3), point(2.5d0, 4)]
    call MPI_Sendrecv(from, 2, all, 0, 0, into, 2, all, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(into(2)%x == 2.5d0 .and. into(2)%n == 4, 'derived types')
    call MPI_Type_get_envelope(one, integers, addresses, datatypes, combiner)
    call check(combiner == MPI_COMBINER_STRUCT .and. datatypes == 2, 'an envelope')
    types = MPI_DATATYPE_NULL
    block
      integer :: numbers(3)
      call MPI_Type_get_contents(one, 3, 2, 2, numbers, places, types)
      call check(types(1) == MPI_DOUBLE_PRECISION .and. numbers(1) == 2, 'contents')
    end block
    call MPI_Type_free(one)
    ! An absolute address.
    call MPI_Get_address(from(2)%n, places(1))
    call MPI_Type_create_hindexed(1, [1], places(1:1), MPI_INTEGER, one)
    call MPI_Type_commit(one)
    call MPI_Sendrecv(MPI_BOTTOM, 1, one, 0, 0, i, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(i == 4, 'MPI_BOTTOM')
    ! A section that is not contiguous, and a buffer that the compiler copies back.
    matrix = reshape([(i, i = 1, 16)], [4, 4])
    call MPI_Sendrecv(matrix(2, :), 4, MPI_INTEGER, 0, 0, row, 4, MPI_INTEGER, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(all_equal(row, [2, 6, 10, 14]), 'a section is sent')
    call MPI_Sendrecv([9, 8, 7, 6], 4, MPI_INTEGER, 0, 0, matrix(3, :), 4, MPI_INTEGER, 0, 0, MPI_COMM_SELF, &
      MPI_STATUS_IGNORE)
    call check(all_equal(matrix(3, :), [9, 8, 7, 6]), 'a section is received')
    call check(.not. MPI_SUBARRAYS_SUPPORTED, 'sections of nonblocking calls are copies')
    call MPI_Type_free(one)
    call MPI_Type_free(all)
  end subroutine

  logical function all_equal(one, other)
    integer, intent(in) :: one(:), other(:)
    all_equal = all(one == other)
  end function

  subroutine windows()
    type(MPI_Win) :: win
    type(c_ptr) :: base, found
    integer, pointer :: memory(:)
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    integer :: unit
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    call MPI_Win_allocate_shared(40_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_SELF, base, win)
    call c_f_pointer(base, memory, [10])
    memory = 0
    call MPI_Win_fence(0, win)
    call MPI_Put(7, 1, MPI_INTEGER, 0, 3_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call check(memory(4) == 7, 'a put')
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag)
    call check(flag .and. value == 40, 'the size of a window')
    call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag)
    call check(flag .and. value == transfer(base, value), 'the base of a window')
    call MPI_Win_shared_query(win, 0, bytes, unit, found)
    call check(bytes == 40 .and. unit == 4 .and. c_associated(found, base), 'shared memory')
    call MPI_Win_free(win)
    call check(win == MPI_WIN_NULL, 'a freed window')
  end subroutine

  subroutine buffers()
    integer, target :: space(1000)
    type(c_ptr) :: detached
    integer :: length
    call MPI_Buffer_attach(space, 4000)
    call MPI_Buffer_detach(detached, length)
    call check(c_associated(detached, c_loc(space)) .and. length == 4000, 'a detached buffer')
    call MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0)
    call MPI_Buffer_detach(detached, length)
    call check(c_associated(detached, c_loc(MPI_BUFFER_AUTOMATIC)), 'automatic buffers')
  end subroutine

  subroutine sizes()
    integer :: size, matrix(3, 3)
    complex(kind=8) :: z
    type(MPI_Datatype) :: datatype
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: is_set
    call MPI_Sizeof(matrix, size)
    call check(size == 4, 'the size of an element')
    call MPI_Sizeof(z, size)
    call check(size == 16, 'the size of a scalar')
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, datatype)
    call check(datatype == MPI_REAL8, 'a type of a size')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, is_set)
    call check(is_set .and. value >= 32767, 'the highest tag')
  end subroutine
end program
