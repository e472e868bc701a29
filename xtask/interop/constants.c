/* Prints every constant and the layout of what is passed, as the header that it is compiled with has them. facts.h is made of
 * crates/abi-mpi/constants.txt, prototypes.h of crates/abi-mpi/functions.txt: each prototype must be the header's. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#ifdef THEIRS
#include "prototypes.h"
#endif

#define FACT(expression) printf("%s %lld\n", #expression, (long long) (expression));

int main(void) {
#include "facts.h"
    FACT(sizeof(MPI_Status))
    FACT(_Alignof(MPI_Status))
    FACT(offsetof(MPI_Status, MPI_SOURCE))
    FACT(offsetof(MPI_Status, MPI_TAG))
    FACT(offsetof(MPI_Status, MPI_ERROR))
    FACT(sizeof(MPI_Aint))
    FACT(sizeof(MPI_Count))
    FACT(sizeof(MPI_Offset))
    FACT(sizeof(MPI_Comm))
    FACT(sizeof(MPI_T_cb_safety))
    FACT(sizeof(MPI_T_source_order))
    return 0;
}
