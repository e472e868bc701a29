/* MPI programs with a bug each, for the checks of abi-mpi-check: the first argument names the bug. Two or more ranks. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int rank, size, other;

/* A long message does not complete before its receiver has come. */
enum { LONG = 1 << 18 };
static int numbers[LONG], more[LONG];

static void changed(int count)
{
	MPI_Request request;

	if (rank == 0) {
		MPI_Isend(numbers, count, MPI_INT, 1, 5, MPI_COMM_WORLD, &request);
		numbers[count / 2] = 7;
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(more, count, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void changed_short(void) { changed(3); }
static void changed_long(void) { changed(LONG); }

/* All requests are complete from the start, and have one handle in some libraries. */
static void changed_one_of_many(void)
{
	MPI_Request requests[4];
	int at;

	if (rank == 0) {
		MPI_Recv(more, 0, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (at = 0; at < 4; at++)
			MPI_Isend(numbers + at, 1, MPI_INT, 1, at, MPI_COMM_WORLD, &requests[at]);
		numbers[2] = 1;
		MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
	} else if (rank == 1) {
		MPI_Send(more, 0, MPI_INT, 0, 9, MPI_COMM_WORLD);
		for (at = 0; at < 4; at++)
			MPI_Recv(more, 1, MPI_INT, 0, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void changed_with_gaps(void)
{
	MPI_Datatype column;
	MPI_Request requests[2];

	MPI_Type_vector(16, 1, 4, MPI_INT, &column);
	MPI_Type_commit(&column);
	if (rank == 0) {
		MPI_Isend(numbers, 1, column, 1, 5, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(numbers + 1, 1, column, 1, 6, MPI_COMM_WORLD, &requests[1]);
		numbers[2] = 1; /* in a gap of both: no finding */
		numbers[9] = 1;
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(more, 1, column, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Recv(more, 16, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Type_free(&column);
}

static void changed_persistent(void)
{
	MPI_Request request;
	int round;

	if (rank == 0) {
		MPI_Send_init(numbers, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
		for (round = 0; round < 2; round++) {
			MPI_Start(&request);
			numbers[0] = round; /* changes in the second round only */
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
		MPI_Request_free(&request);
	} else if (rank == 1) {
		for (round = 0; round < 2; round++)
			MPI_Recv(more, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void gone(void)
{
	MPI_Request request;
	size_t bytes = 1 << 20;

	if (rank == 0) {
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(memory, 1, bytes);
		MPI_Isend(memory, 64, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
		munmap(memory, bytes);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(more, 64, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void overlap_receives(void)
{
	MPI_Request requests[2];

	if (rank == 0) {
		MPI_Irecv(more, 8, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[0]);
		MPI_Irecv(more + 7, 8, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	} else if (rank == 1) {
		MPI_Send(numbers, 8, MPI_INT, 0, 1, MPI_COMM_WORLD);
		MPI_Send(numbers, 8, MPI_INT, 0, 2, MPI_COMM_WORLD);
	}
}

static void overlap_send(void)
{
	MPI_Request request;

	MPI_Irecv(more, 8, MPI_INT, other, 1, MPI_COMM_WORLD, &request);
	MPI_Send(more + 4, 8, MPI_INT, other, 1, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void types(void)
{
	if (rank == 0)
		MPI_Send(numbers, 4, MPI_INT, 1, 1, MPI_COMM_WORLD);
	else if (rank == 1)
		MPI_Recv(more, 4, MPI_FLOAT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void types_struct(void)
{
	struct pair {
		int key;
		double value;
	} pair = { 1, 2 };
	MPI_Datatype made, kinds[2] = { MPI_INT, MPI_DOUBLE };
	MPI_Aint places[2] = { offsetof(struct pair, key), offsetof(struct pair, value) };
	int lengths[2] = { 1, 1 };

	MPI_Type_create_struct(2, lengths, places, kinds, &made);
	MPI_Type_commit(&made);
	if (rank == 0) {
		MPI_Send(&pair, 1, made, 1, 1, MPI_COMM_WORLD);
		MPI_Send(&pair, 1, made, 1, 2, MPI_COMM_WORLD);
	} else if (rank == 1) {
		MPI_Recv(&pair, 1, made, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Recv(more, 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Type_free(&made);
}

/* The receive that was posted first waits for another message. */
static void types_out_of_order(void)
{
	MPI_Request first, second;

	if (rank == 0) {
		MPI_Irecv(more, 4, MPI_INT, 1, 2, MPI_COMM_WORLD, &first);
		MPI_Irecv(more + 8, 8, MPI_FLOAT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &second);
		MPI_Wait(&second, MPI_STATUS_IGNORE);
		MPI_Send(numbers, 0, MPI_INT, 1, 3, MPI_COMM_WORLD);
		MPI_Wait(&first, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Send(numbers, 4, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
		MPI_Recv(more, 0, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(numbers, 4, MPI_INT, 0, 2, MPI_COMM_WORLD);
	}
}

/* MPI_BYTE and MPI_INT32_T: findings of the strict level only. */
static void types_strict(void)
{
	if (rank == 0) {
		MPI_Send(numbers, 4, MPI_INT, 1, 1, MPI_COMM_WORLD);
	} else if (rank == 1) {
		MPI_Recv(more, 16, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void collective_kinds(void)
{
	/* Both end although they differ. */
	if (rank == 0)
		MPI_Allgather(numbers, 1, MPI_INT, more, 1, MPI_INT, MPI_COMM_WORLD);
	else
		MPI_Alltoall(numbers, 1, MPI_INT, more, 1, MPI_INT, MPI_COMM_WORLD);
	MPI_Abort(MPI_COMM_WORLD, 0);
}

static void collective_roots(void)
{
	MPI_Bcast(numbers, 4, MPI_INT, rank == 0 ? 0 : 1, MPI_COMM_WORLD);
	MPI_Abort(MPI_COMM_WORLD, 0);
}

static void collective_counts(void)
{
	MPI_Bcast(numbers, rank == 0 ? 2 : 3, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Abort(MPI_COMM_WORLD, 0);
}

static void collective_ops(void)
{
	MPI_Allreduce(numbers, more, 2, MPI_INT, rank == 0 ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
}

static void collective_types(void)
{
	MPI_Allreduce(numbers, more, 2, rank == 0 ? MPI_INT : MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void request_left(void)
{
	MPI_Request request;

	if (rank == 0)
		MPI_Isend(numbers, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
	else if (rank == 1)
		MPI_Recv(more, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void request_persistent_left(void)
{
	MPI_Request request;

	if (rank == 0)
		MPI_Recv_init(more, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
}

static void request_collective_left(void)
{
	MPI_Request request;

	MPI_Ibarrier(MPI_COMM_WORLD, &request);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void not_received(void)
{
	if (rank == 0)
		MPI_Send(numbers, 4, MPI_INT, 1, 9, MPI_COMM_WORLD);
}

static void leak_comm(void)
{
	MPI_Comm comm;

	MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
}

static void leak_type(void)
{
	MPI_Datatype type;
	int at;

	for (at = 0; at < 3; at++) {
		MPI_Type_contiguous(3, MPI_INT, &type);
		MPI_Type_commit(&type);
	}
}

static void leak_group(void)
{
	MPI_Group group;

	MPI_Comm_group(MPI_COMM_WORLD, &group);
}

static void nothing(void *in, void *out, int *count, MPI_Datatype *type)
{
	(void)in, (void)out, (void)count, (void)type;
}

static void leak_op(void)
{
	MPI_Op op;

	MPI_Op_create(nothing, 1, &op);
}

static void leak_info(void)
{
	MPI_Info info;

	MPI_Info_create(&info);
}

/* Much that is right, with all ways to receive. */
static void nothing_wrong(void)
{
	MPI_Request requests[8];
	MPI_Status statuses[8], status;
	MPI_Message message;
	MPI_Comm comm, cart, half;
	MPI_Datatype column, pairs;
	MPI_Group group;
	int round, at, flag, index, done, indices[8], dims[1] = { size }, periods[1] = { 1 }, left, right, count;
	long total = 0;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_split(comm, rank % 2, rank, &half);
	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
	MPI_Cart_shift(cart, 0, 1, &left, &right);
	MPI_Type_vector(8, 2, 4, MPI_INT, &column);
	MPI_Type_commit(&column);
	MPI_Type_contiguous(2, MPI_INT, &pairs);
	MPI_Type_commit(&pairs);
	for (round = 0; round < 20; round++) {
		/* Messages that are there before their receive, so that requests are complete from the start. */
		for (at = 0; at < 4; at++)
			MPI_Isend(numbers + at * 16, 16, MPI_INT, other, at, comm, &requests[at]);
		MPI_Barrier(comm);
		MPI_Probe(MPI_ANY_SOURCE, 3, comm, &status);
		MPI_Get_count(&status, MPI_INT, &count);
		if (status.MPI_SOURCE != other || count != 16)
			abort();
		for (at = 0; at < 4; at++)
			MPI_Irecv(more + at * 16, 16, MPI_INT, at % 2 ? MPI_ANY_SOURCE : other, 3 - at, comm, &requests[4 + at]);
		MPI_Waitall(8, requests, statuses);
		for (at = 0; at < 4; at++) {
			MPI_Get_count(&statuses[4 + at], MPI_INT, &count);
			if (statuses[4 + at].MPI_SOURCE != other || statuses[4 + at].MPI_TAG != 3 - at || count != 16)
				abort();
		}
		/* A vector into pairs, wildcards, and a longer receive. */
		MPI_Irecv(more, 100, pairs, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]);
		MPI_Irecv(more + 300, 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[1]);
		MPI_Send(numbers, 1, column, other, 1, comm);
		MPI_Ssend(numbers, 3, MPI_INT, other, 2, comm);
		MPI_Wait(&requests[1], &status);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		/* All calls that complete. */
		for (at = 0; at < 4; at++)
			MPI_Irecv(more + at, 1, MPI_INT, other, at, comm, &requests[at]);
		for (at = 0; at < 4; at++)
			MPI_Bsend(numbers, 1, MPI_INT, other, at, comm);
		MPI_Waitany(4, requests, &index, &status);
		for (flag = 0; !flag;)
			MPI_Testany(4, requests, &index, &flag, MPI_STATUS_IGNORE);
		for (done = 0; done == 0;)
			MPI_Testsome(4, requests, &done, indices, MPI_STATUSES_IGNORE);
		for (; done != MPI_UNDEFINED;)
			MPI_Waitsome(4, requests, &done, indices, statuses);
		for (flag = 0; !flag;)
			MPI_Testall(4, requests, &flag, statuses);
		MPI_Sendrecv(numbers, 5, MPI_INT, right, 0, more, 5, MPI_INT, left, 0, cart, &status);
		MPI_Sendrecv_replace(numbers, 5, MPI_INT, right, 0, left, 0, cart, MPI_STATUS_IGNORE);
		/* By its handle. */
		MPI_Isend(numbers, 2, MPI_INT, other, 8, comm, &requests[0]);
		MPI_Isend(numbers, 2, MPI_INT, other, 8, comm, &requests[1]);
		MPI_Mprobe(MPI_ANY_SOURCE, 8, comm, &message, &status);
		MPI_Recv(more, 2, MPI_INT, other, 8, comm, MPI_STATUS_IGNORE);
		MPI_Mrecv(more, 2, MPI_INT, &message, MPI_STATUS_IGNORE);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		/* A receive that is cancelled. */
		MPI_Irecv(more, 2, MPI_INT, other, 77, comm, &requests[0]);
		MPI_Cancel(&requests[0]);
		MPI_Wait(&requests[0], &status);
		MPI_Send(numbers, 2, MPI_INT, MPI_PROC_NULL, 1, comm);
		MPI_Recv(more, 2, MPI_INT, MPI_PROC_NULL, 1, comm, MPI_STATUS_IGNORE);
		MPI_Bcast(numbers, 2, pairs, 0, comm);
		MPI_Gather(numbers, 2, MPI_INT, more, 2, MPI_INT, 1, comm);
		MPI_Scatter(numbers, 2, MPI_INT, more, 2, MPI_INT, 1, comm);
		MPI_Allreduce(MPI_IN_PLACE, numbers, 2, MPI_INT, MPI_MAX, comm);
		MPI_Reduce(rank == 0 ? MPI_IN_PLACE : numbers, numbers, 2, MPI_INT, MPI_MAX, 0, comm);
		MPI_Iallreduce(numbers, more, 2, MPI_INT, MPI_MAX, half, &requests[0]);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		MPI_Exscan(numbers, more, 2, MPI_INT, MPI_SUM, comm);
		total += more[0];
	}
	MPI_Send_init(numbers, 4, MPI_INT, other, 1, comm, &requests[0]);
	MPI_Recv_init(more, 4, MPI_INT, other, 1, comm, &requests[1]);
	for (round = 0; round < 3; round++) {
		MPI_Startall(2, requests);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
	MPI_Comm_group(comm, &group);
	MPI_Group_free(&group);
	MPI_Comm_group(comm, &group);
	(void)total;
	MPI_Group_free(&group);
	MPI_Type_free(&column);
	MPI_Type_free(&pairs);
	MPI_Comm_free(&cart);
	MPI_Comm_free(&half);
	MPI_Comm_free(&comm);
}

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{ "changed-short", changed_short },
	{ "changed-one-of-many", changed_one_of_many },
	{ "changed-long", changed_long },
	{ "changed-with-gaps", changed_with_gaps },
	{ "changed-persistent", changed_persistent },
	{ "gone", gone },
	{ "overlap-receives", overlap_receives },
	{ "overlap-send", overlap_send },
	{ "types", types },
	{ "types-struct", types_struct },
	{ "types-out-of-order", types_out_of_order },
	{ "types-strict", types_strict },
	{ "collective-kinds", collective_kinds },
	{ "collective-roots", collective_roots },
	{ "collective-counts", collective_counts },
	{ "collective-ops", collective_ops },
	{ "collective-types", collective_types },
	{ "request-left", request_left },
	{ "request-persistent-left", request_persistent_left },
	{ "request-collective-left", request_collective_left },
	{ "not-received", not_received },
	{ "leak-comm", leak_comm },
	{ "leak-type", leak_type },
	{ "leak-group", leak_group },
	{ "leak-op", leak_op },
	{ "leak-info", leak_info },
	{ "nothing", nothing_wrong },
};

int main(void)
{
	static char room[1 << 20];
	const char *wanted = getenv("WRONG");
	void *old;
	int old_size;
	size_t at;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	other = rank ^ 1;
	MPI_Buffer_attach(room, sizeof room);
	for (at = 0; at < sizeof programs / sizeof *programs; at++)
		if (wanted && !strcmp(programs[at].name, wanted))
			programs[at].run();
	MPI_Buffer_detach(&old, &old_size);
	MPI_Finalize();
	return 0;
}
