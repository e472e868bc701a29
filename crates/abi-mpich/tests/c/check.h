/* Checks of the tests: a false one names itself and ends the program. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);        \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)
#define DO(call) CHECK((call) == MPI_SUCCESS)

/* The class of an error code. */
static inline int class_of(int code)
{
    int class;
    DO(MPI_Error_class(code, &class));
    return class;
}
