/* Queue pairs that are moved to RESET and used again: from each state, for the same peer or another one, in any order of the two ends, in
   one process and in two, with shared receives, datagrams and a queue pair that is its own peer. */
#include <pthread.h>

#include "reset.h"

/* From each state, and with each other state at the peer; then connected again. */
static void each_state(void)
{
	enum { AS_MADE, AT_INIT, AT_RTR, AT_RTS, USED, FULL, FAILED, STATES };
	struct end a, b;
	uint32_t round = 1;

	make(&a, 0);
	make(&b, 0);
	for (int of_a = 0; of_a < STATES; of_a++)
		for (int of_b = 0; of_b < STATES; of_b++, round++) {
			struct end *ends[] = { &a, &b };
			int states[] = { of_a, of_b };

			for (int i = 0; i < 2; i++) {
				if (states[i] >= AT_INIT)
					to_init(ends[i]);
				if (states[i] >= AT_RTR)
					to_rtr(ends[i], name_of(ends[!i]));
				if (states[i] >= AT_RTS)
					to_rts(ends[i]);
			}
			if (of_a >= USED && of_b >= USED)
				talk(&a, &b, round);
			for (int i = 0; i < 2; i++) {
				if (states[i] == FULL)
					for (int wr = 0; wr < DEPTH; wr++)
						CHECK(!post(ends[i], 0xdead, wr));
				if (states[i] >= AT_INIT)
					for (int wr = 0; wr < DEPTH / 2; wr++)
						CHECK(!receive(ends[i], 0xdead, wr));
				if (states[i] == FAILED)
					CHECK(!move(ends[i], IBV_QPS_ERR) && state_of(ends[i]) == IBV_QPS_ERR);
			}
			reset(ends[round & 1]);
			reset(ends[~round & 1]);
			CHECK(receive(&a, 0xdead, 0) && post(&b, 0xdead, 0));
			connects_to(ends[round >> 1 & 1], name_of(ends[~round >> 1 & 1]));
			connects_to(ends[~round >> 1 & 1], name_of(ends[round >> 1 & 1]));
			talk(&a, &b, round);
			reset(&a);
			reset(&b);
		}
	destroy(&a);
	destroy(&b);
}

static unsigned seed = 1;

static int below(int n)
{
	return (seed = seed * 1103515245 + 12345) / 65536 % n;
}

/* Many rounds, with all kinds of work in flight when an end is reset; an end may be reset again before the other one is connected. */
static void many_rounds(int is_shared)
{
	struct end a, b, *ends[] = { &a, &b };

	make(&a, is_shared);
	make(&b, is_shared);
	for (uint32_t round = 1; round < 200; round++) {
		int first = below(2), receives = below(DEPTH / 2), messages = below(DEPTH);

		if (below(3) == 0) {
			connects_to(ends[first], name_of(ends[!first]));
			reset(ends[first]);
		}
		connects_to(ends[first], name_of(ends[!first]));
		connects_to(ends[!first], name_of(ends[first]));
		talk(&a, &b, round);
		for (int i = 0; i < receives; i++)
			CHECK(!receive(&b, round, i));
		for (int i = 0; i < messages; i++)
			CHECK(!post(&a, round, i));
		if (below(2))
			for (int i = 0; i < (receives < messages ? receives : messages); i++)
				takes(&b, round);
		first = below(2);
		if (below(4) == 0)
			CHECK(!move(ends[first], IBV_QPS_ERR));
		reset(ends[first]);
		reset(ends[!first]);
	}
	destroy(&a);
	destroy(&b);
}

/* Several queue pairs are connected in changing pairs. */
static void other_peers(void)
{
	enum { ENDS = 5 };
	static struct end ends[ENDS];

	for (int i = 0; i < ENDS; i++)
		make(&ends[i], 0);
	for (uint32_t round = 1; round < 60; round++) {
		int one = below(ENDS), other = (one + 1 + below(ENDS - 1)) % ENDS;

		/* Their former peers are not reset. */
		reset(&ends[one]);
		reset(&ends[other]);
		connects_to(&ends[one], name_of(&ends[other]));
		connects_to(&ends[other], name_of(&ends[one]));
		talk(&ends[one], &ends[other], round);
		CHECK(!post(&ends[one], 0xdead, 0));
	}
	for (int i = 0; i < ENDS; i++)
		destroy(&ends[i]);
}

/* A queue pair connected to itself. */
static void with_itself(void)
{
	struct end end;

	make(&end, 0);
	for (uint32_t round = 1; round < 20; round++) {
		connects_to(&end, name_of(&end));
		CHECK(!receive(&end, round, 0) && !post(&end, round, 0));
		next(&end, round);
		next(&end, round);
		CHECK(!post(&end, 0xdead, 0));
		reset(&end);
	}
	destroy(&end);
}

/* Receives of a shared queue that a queue pair had taken when it was reset free their places for new receives. */
static void shared_receives_come_back(void)
{
	struct end a, b;

	make(&a, 0);
	make(&b, 1);
	for (uint32_t round = 1; round < 30; round++) {
		connects_to(&a, name_of(&b));
		connects_to(&b, name_of(&a));
		for (int i = 0; i < 4; i++)
			CHECK(!receive(&b, round, i));
		for (int i = 0; i < 4; i++)
			CHECK(!post(&a, round, i));
		for (int i = 0; i < 4; i++)
			sends(&a, round);
		takes(&b, round);
		reset(&b);
		reset(&a);
	}
	destroy(&a);
	destroy(&b);
}

/* Datagrams: from RTS, with receives posted, to RESET; those that arrive in the meantime are dropped. */
static void datagrams(void)
{
	enum { ROUTE = 40 };
	struct end end;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { DEPTH, DEPTH, 1, 1, 0 }, .sq_sig_all = 1 };
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &way);

	memset(&end, 0, sizeof end);
	CHECK(ah && (end.cq = init.send_cq = init.recv_cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0)));
	CHECK((end.qp = ibv_create_qp(pd, &init)) && (end.mr = ibv_reg_mr(pd, end.memory, sizeof end.memory, ACCESS)));
	for (uint32_t round = 1; round < 20; round++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
		struct ibv_sge place = { (uintptr_t)end.memory, SIZE + ROUTE, end.mr->lkey }, word = { (uintptr_t)end.memory + 256, SIZE, end.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = (uint64_t)round << 8, .sg_list = &place, .num_sge = 1 }, *bad;
		struct ibv_send_wr to = { .wr_id = (uint64_t)round << 8, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = round, .sg_list = &word,
			.num_sge = 1, .wr.ud = { ah, end.qp->qp_num, 7 } }, *wrong;
		int received = 0;

		CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
		attr.qp_state = IBV_QPS_RTR;
		CHECK(!ibv_post_recv(end.qp, &wr, &bad) && !ibv_modify_qp(end.qp, &attr, IBV_QP_STATE));
		attr.qp_state = IBV_QPS_RTS;
		CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) && !ibv_post_send(end.qp, &to, &wrong));
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = next(&end, round);

			received += wc.opcode == IBV_WC_RECV && wc.imm_data == round && wc.src_qp == end.qp->qp_num;
		}
		CHECK(received == 1 && !ibv_post_recv(end.qp, &wr, &bad));
		reset(&end);
	}
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(end.qp) && !ibv_destroy_cq(end.cq) && !ibv_dereg_mr(end.mr));
}

/* Other queue pairs of the same completion queue go on in the meantime, and lose nothing. */
struct load {
	struct end a, b;
	volatile int is_over;
};

static void *carry(void *place)
{
	struct load *load = place;

	for (uint32_t round = 1; !load->is_over; round = round % 100000 + 1)
		talk(&load->a, &load->b, round);
	return NULL;
}

static void under_load(void)
{
	static struct load load;
	pthread_t thread;

	make(&load.a, 0);
	make(&load.b, 0);
	connects_to(&load.a, name_of(&load.b));
	connects_to(&load.b, name_of(&load.a));
	CHECK(!pthread_create(&thread, NULL, carry, &load));
	many_rounds(0);
	other_peers();
	load.is_over = 1;
	CHECK(!pthread_join(thread, NULL));
	destroy(&load.a);
	destroy(&load.b);
}

static void half(int socket, int side)
{
	struct end end;
	struct name peer, own;

	open_device();
	make(&end, 0);
	own = name_of(&end);
	CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &peer, sizeof peer) == sizeof peer);
	for (uint32_t round = 1; round < 200; round++) {
		/* Both processes draw the same numbers: which is late, and which resets again. */
		int late = below(3), again = below(3), fails = below(4), messages = below(DEPTH);

		if (late == side)
			usleep(below(2000));
		else
			below(2000);
		if (again == side) {
			connects_to(&end, peer);
			reset(&end);
		}
		/* On a card, too, both must have started again before one of them sends. */
		word(socket, 'r');
		connects_to(&end, peer);
		for (int i = 0; i < DEPTH; i++)
			CHECK(!receive(&end, round, i));
		CHECK(!post(&end, round, 0));
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = next(&end, round);

			CHECK(wc.opcode != IBV_WC_RECV || wc.imm_data == round);
		}
		word(socket, 't');
		for (int i = 0; i < messages; i++)
			CHECK(!post(&end, round, i));
		if (fails == side)
			CHECK(!move(&end, IBV_QPS_ERR));
		reset(&end);
	}
	word(socket, 'e');
	destroy(&end);
}

static void two_processes(void)
{
	in_two_processes(half);
}

static void single(void)
{
	many_rounds(0);
}

static void shared(void)
{
	many_rounds(1);
}

static const struct part {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "two processes", two_processes },
	{ "each state", each_state },
	{ "many rounds", single },
	{ "many rounds, shared receives", shared },
	{ "other peers", other_peers },
	{ "with itself", with_itself },
	{ "shared receives come back", shared_receives_come_back },
	{ "datagrams", datagrams },
	{ "under load", under_load },
};

int main(int count, char **arguments)
{
	if (count > 1)
		seed = strtoul(arguments[1], NULL, 10);
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
		puts(parts[i].name);
		parts[i].run();
	}
	puts("all reset");
	return 0;
}
