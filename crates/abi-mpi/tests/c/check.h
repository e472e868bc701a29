/* Shared by the test programs: a check that reports its location and aborts the job. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                                        \
    do {                                                                                                                        \
        if (!(condition)) {                                                                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                                                       \
        }                                                                                                                       \
    } while (0)

#define OK(call)                                                                                                                \
    do {                                                                                                                        \
        int done_ = (call), length_ = 0;                                                                                        \
        char text_[MPI_MAX_ERROR_STRING] = "";                                                                                  \
        if (done_ != MPI_SUCCESS) {                                                                                             \
            MPI_Error_string(done_, text_, &length_);                                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text_);                                               \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                                                       \
        }                                                                                                                       \
    } while (0)

/* Checks that a call fails with this class. */
#define FAILS(class, call)                                                                                                      \
    do {                                                                                                                        \
        int code_ = (call), class_ = -1;                                                                                        \
        CHECK(code_ != MPI_SUCCESS);                                                                                            \
        OK(MPI_Error_class(code_, &class_));                                                                                    \
        if (class_ != (class)) fprintf(stderr, "class %d instead of %d\n", class_, class);                                      \
        CHECK(class_ == (class));                                                                                               \
    } while (0)
