
/*
 * Conversions of handles to Fortran integers under their names until MPI 4.1, for older programs; the standard ABI has only _toint
 * and _fromint. NICETY_ABI_ONLY removes these names.
 */
#ifndef NICETY_ABI_ONLY
typedef int MPI_Fint;
#define MPI_F_STATUS_IGNORE ((MPI_Fint*) 0)
#define MPI_F_STATUSES_IGNORE ((MPI_Fint*) 0)
static inline int MPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status)
{
    int at;
    f_status[MPI_F_SOURCE] = c_status->MPI_SOURCE;
    f_status[MPI_F_TAG] = c_status->MPI_TAG;
    f_status[MPI_F_ERROR] = c_status->MPI_ERROR;
    for (at = 3; at < MPI_F_STATUS_SIZE; at++)
        f_status[at] = c_status->MPI_internal[at - 3];
    return MPI_SUCCESS;
}
static inline int MPI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status)
{
    int at;
    c_status->MPI_SOURCE = f_status[MPI_F_SOURCE];
    c_status->MPI_TAG = f_status[MPI_F_TAG];
    c_status->MPI_ERROR = f_status[MPI_F_ERROR];
    for (at = 3; at < MPI_F_STATUS_SIZE; at++)
        c_status->MPI_internal[at - 3] = f_status[at];
    return MPI_SUCCESS;
}
#define PMPI_Status_c2f MPI_Status_c2f
#define PMPI_Status_f2c MPI_Status_f2c
