
/*
 * What MPI 3.0 removed. A use is an error of the compiler that names the successor; with NICETY_MPI1 defined, the functions work.
 * A program may define these names itself before it includes this header. NICETY_ABI_ONLY removes them.
 */
#ifndef NICETY_ABI_ONLY
#ifdef NICETY_MPI1
#define nicety_removed(text)
#define nicety_body(call) { return call; }
#else
#if defined __has_attribute
#if __has_attribute(unavailable)
#define nicety_removed(text) __attribute__((unavailable(text ", or compile with -DNICETY_MPI1")))
#elif __has_attribute(error)
#define nicety_removed(text) __attribute__((error(text ", or compile with -DNICETY_MPI1")))
#endif
#endif
#define nicety_body(call) ;
#endif
#ifdef nicety_removed
#ifdef NICETY_MPI1
#define nicety_old static inline
#else
#define nicety_old
#endif
typedef MPI_Comm_errhandler_function MPI_Handler_function;
#ifndef MPI_Address
nicety_removed("MPI 3.0 removed MPI_Address; call MPI_Get_address")
nicety_old int MPI_Address(void *location, MPI_Aint *address)
nicety_body(MPI_Get_address(location, address))
#endif
#ifndef MPI_Errhandler_create
nicety_removed("MPI 3.0 removed MPI_Errhandler_create; call MPI_Comm_create_errhandler")
nicety_old int MPI_Errhandler_create(MPI_Handler_function *function, MPI_Errhandler *errhandler)
nicety_body(MPI_Comm_create_errhandler(function, errhandler))
#endif
#ifndef MPI_Errhandler_get
nicety_removed("MPI 3.0 removed MPI_Errhandler_get; call MPI_Comm_get_errhandler")
nicety_old int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler)
nicety_body(MPI_Comm_get_errhandler(comm, errhandler))
#endif
#ifndef MPI_Errhandler_set
nicety_removed("MPI 3.0 removed MPI_Errhandler_set; call MPI_Comm_set_errhandler")
nicety_old int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler)
nicety_body(MPI_Comm_set_errhandler(comm, errhandler))
#endif
#ifndef MPI_Type_hindexed
nicety_removed("MPI 3.0 removed MPI_Type_hindexed; call MPI_Type_create_hindexed")
nicety_old int MPI_Type_hindexed(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype)
nicety_body(MPI_Type_create_hindexed(count, lengths, displacements, oldtype, newtype))
#endif
#ifndef MPI_Type_hvector
nicety_removed("MPI 3.0 removed MPI_Type_hvector; call MPI_Type_create_hvector")
nicety_old int MPI_Type_hvector(int count, int length, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype)
nicety_body(MPI_Type_create_hvector(count, length, stride, oldtype, newtype))
#endif
#ifndef MPI_Type_struct
nicety_removed("MPI 3.0 removed MPI_Type_struct; call MPI_Type_create_struct")
nicety_old int MPI_Type_struct(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype types[], MPI_Datatype *newtype)
nicety_body(MPI_Type_create_struct(count, lengths, displacements, types, newtype))
#endif
#ifdef NICETY_MPI1
static inline MPI_Aint nicety_extent(MPI_Datatype datatype, MPI_Aint *lb, int *code)
{
    MPI_Aint extent = 0;
    *code = MPI_Type_get_extent(datatype, lb, &extent);
    return extent;
}
#define nicety_bound(value) { MPI_Aint lb = 0; int code; MPI_Aint extent = nicety_extent(datatype, &lb, &code); (void) extent; *result = value; return code; }
#else
#define nicety_bound(value) ;
#endif
#ifndef MPI_Type_extent
nicety_removed("MPI 3.0 removed MPI_Type_extent; call MPI_Type_get_extent")
nicety_old int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *result)
nicety_bound(extent)
#endif
#ifndef MPI_Type_lb
nicety_removed("MPI 3.0 removed MPI_Type_lb; call MPI_Type_get_extent")
nicety_old int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *result)
nicety_bound(lb)
#endif
#ifndef MPI_Type_ub
nicety_removed("MPI 3.0 removed MPI_Type_ub; call MPI_Type_get_extent")
nicety_old int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *result)
nicety_bound(lb + extent)
#endif
#undef nicety_old
#undef nicety_bound
#undef nicety_removed
#endif
#undef nicety_body
/* These have no successor of the same kind. */
#ifdef __has_attribute
#if __has_attribute(unavailable)
#ifndef MPI_LB
extern MPI_Datatype MPI_LB __attribute__((unavailable("MPI 3.0 removed MPI_LB; call MPI_Type_create_resized")));
#endif
#ifndef MPI_UB
extern MPI_Datatype MPI_UB __attribute__((unavailable("MPI 3.0 removed MPI_UB; call MPI_Type_create_resized")));
#endif
#endif
#endif
#endif
