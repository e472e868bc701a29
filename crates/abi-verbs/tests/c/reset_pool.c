/* The guarantees for pools that reset queue pairs and reuse them for the next connection (Mooncake, brpc): nothing leaks, other queue
   pairs on the same completion queue lose nothing while a thread polls it, a peer that still sends fails as with a card, the last receive
   of a shared queue is reported each time, other processes can still use the number, and librdmacm may have created or connected the
   queue pair. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cm.h"
#include "reset.h"

static void connect_both(struct end *a, struct end *b)
{
	connects_to(a, name_of(b));
	connects_to(b, name_of(a));
}

/* Posts messages for as long as they succeed. The first error is a missing acknowledgement, as on a card whose peer was reset. */
static void send_until_it_fails(struct end *end)
{
	time_t limit = time(NULL) + LIMIT_S;
	struct ibv_wc wc;

	do {
		int error = post(end, 1, 0);

		CHECK((!error || error == ENOMEM) && time(NULL) < limit);
	} while (!ibv_poll_cq(end->cq, 1, &wc) || !wc.status);
	if (wc.status != IBV_WC_RETRY_EXC_ERR)
		printf("%s\n", ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && state_of(end) == IBV_QPS_ERR);
}

/* The next completions are this many flushed receives. */
static void flushes(struct end *end, int receives)
{
	time_t limit = time(NULL) + LIMIT_S;
	struct ibv_wc wc;

	while (receives) {
		CHECK(time(NULL) < limit);
		if (!ibv_poll_cq(end->cq, 1, &wc))
			continue;
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
		receives -= wc.wr_id >> 8 == 2;
	}
}

static void peer_still_sends(void)
{
	struct end a, b;

	make(&a, 0);
	make(&b, 0);
	for (uint32_t round = 1; round < 20; round++) {
		connect_both(&a, &b);
		talk(&a, &b, 1);
		for (int i = 0; i < 3; i++)
			CHECK(!receive(&a, 2, i));
		for (int i = 0; i < (int)round % 4; i++)
			CHECK(!receive(&b, 2, i));
		for (int i = 0; i < DEPTH / 2; i++)
			CHECK(!post(&a, 1, i));
		reset(&b);
		/* An end that does not send does not notice. */
		CHECK(state_of(&a) == IBV_QPS_RTS);
		send_until_it_fails(&a);
		flushes(&a, 3);
		reset(&a);
		connect_both(&a, &b);
		talk(&a, &b, round);
		reset(&a);
		reset(&b);
	}
	destroy(&a);
	destroy(&b);
}

static void half_that_sends_or_resets(int socket, int side)
{
	struct end end;
	struct name peer, own;

	open_device();
	make(&end, 0);
	own = name_of(&end);
	CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &peer, sizeof peer) == sizeof peer);
	for (uint32_t round = 0; round < 20; round++) {
		connects_to(&end, peer);
		if ((round & 1) == (uint32_t)side) {
			send_until_it_fails(&end);
		} else {
			for (int i = 0; i < DEPTH / 2; i++)
				CHECK(!receive(&end, 1, i));
			CHECK(next(&end, 1).opcode == IBV_WC_RECV);
		}
		reset(&end);
		word(socket, 'r');
	}
	destroy(&end);
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Bytes of address space. */
static long space(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages;

	CHECK(file && fscanf(file, "%ld", &pages) == 1 && !fclose(file));
	return pages * sysconf(_SC_PAGESIZE);
}

static size_t allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Used in every way, 100 times after the first rounds: descriptors, memory and address space do not grow. */
static void nothing_leaks(void)
{
	enum { FIRST = 20, ROUNDS = 100, SLACK = 16 << 10, SPACE_SLACK = 1 << 20 };
	struct end ends[4];
	int before = 0;
	size_t bytes = 0;
	long room = 0;

	for (int i = 0; i < 4; i++)
		make(&ends[i], i == 3);
	for (uint32_t round = 1; round <= FIRST + ROUNDS; round++) {
		struct end *a = &ends[round % 3], *b = &ends[round % 2 ? 3 : (round + 1) % 3];

		connect_both(a, b);
		talk(a, b, round);
		for (int i = 0; i < DEPTH / 2; i++)
			CHECK(!receive(b, round, i));
		for (int i = 0; i < DEPTH; i++)
			CHECK(!post(a, round, i));
		if (round % 5 == 0)
			CHECK(!move(a, IBV_QPS_ERR));
		reset(round % 3 ? a : b);
		reset(round % 3 ? b : a);
		if (round == FIRST) {
			before = descriptors();
			bytes = allocated();
			room = space();
		}
	}
	/* The device's thread closes connections after the call. */
	time_t limit = time(NULL) + LIMIT_S;

	while (descriptors() > before || allocated() > bytes + SLACK) {
		if (time(NULL) >= limit)
			printf("%d descriptors and %d, %zu bytes and %zu\n", before, descriptors(), bytes, allocated());
		CHECK(time(NULL) < limit);
		usleep(1000);
	}
	CHECK(space() <= room + SPACE_SLACK);
	for (int i = 0; i < 4; i++)
		destroy(&ends[i]);
}

/* Pairs of queue pairs on one completion queue, which a thread polls all the time. */
enum { PAIRS = 4 };

static struct pool {
	struct end ends[2 * PAIRS];
	/* For each end: the last round without further completions, and the completions of the current round. */
	atomic_uint reset_in[2 * PAIRS], sent[2 * PAIRS], received[2 * PAIRS];
	atomic_int is_over;
} pool;

static int end_of(uint32_t qp_num)
{
	for (int i = 0; i < 2 * PAIRS; i++)
		if (pool.ends[i].qp->qp_num == qp_num)
			return i;
	CHECK(!"a completion of one of the pool");
	return -1;
}

static void *poll_pool(void *unused)
{
	struct ibv_wc wcs[16];
	uint32_t before[2 * PAIRS];

	(void)unused;
	while (!pool.is_over) {
		for (int i = 0; i < 2 * PAIRS; i++)
			before[i] = pool.reset_in[i];
		int count = ibv_poll_cq(pool.ends[0].cq, 16, wcs);

		CHECK(count >= 0);
		for (int i = 0; i < count; i++) {
			int at = end_of(wcs[i].qp_num);

			CHECK(wcs[i].wr_id >> 8 > before[at]);
			if (wcs[i].status)
				continue;
			(wcs[i].opcode == IBV_WC_RECV ? pool.received : pool.sent)[at]++;
		}
	}
	return NULL;
}

static void wait_for(atomic_uint *count, unsigned wanted)
{
	time_t limit = time(NULL) + LIMIT_S;

	while (*count < wanted)
		CHECK(time(NULL) < limit);
}

static void one_queue_for_all(void)
{
	pthread_t thread;

	for (int i = 0; i < 2 * PAIRS; i++) {
		make(&pool.ends[i], 0);
		if (i) {
			struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 }, .sq_sig_all = 1,
				.send_cq = pool.ends[0].cq, .recv_cq = pool.ends[0].cq };

			CHECK(!ibv_destroy_qp(pool.ends[i].qp) && !ibv_destroy_cq(pool.ends[i].cq));
			CHECK(pool.ends[i].qp = ibv_create_qp(pd, &init));
			pool.ends[i].cq = pool.ends[0].cq;
		}
	}
	CHECK(!ibv_resize_cq(pool.ends[0].cq, 4 * DEPTH * PAIRS));
	CHECK(!pthread_create(&thread, NULL, poll_pool, NULL));
	for (uint32_t round = 1; round < 200; round++) {
		int at = round % PAIRS * 2, receives = DEPTH / 2, messages = 1 + round % DEPTH;
		int come = messages < receives ? messages : receives;
		struct end *a = &pool.ends[at], *b = &pool.ends[at + 1];

		/* Messages left from the last round of this pair; other pairs have their own. */
		for (int i = 0; i < 2; i++) {
			int which = at + ((round >> 3 & 1) ^ i);

			CHECK(!move(&pool.ends[which], IBV_QPS_RESET));
			pool.reset_in[which] = round - 1;
			pool.sent[which] = pool.received[which] = 0;
		}
		connect_both(a, b);
		for (int i = 0; i < receives; i++)
			CHECK(!receive(b, round, i));
		for (int i = 0; i < messages; i++)
			CHECK(!post(a, round, i));
		if (round % 3) {
			wait_for(&pool.received[at + 1], come);
			wait_for(&pool.sent[at], come);
		}
	}
	pool.is_over = 1;
	CHECK(!pthread_join(thread, NULL));
	for (int i = 0; i < 2 * PAIRS; i++)
		CHECK(!ibv_destroy_qp(pool.ends[i].qp) && !ibv_dereg_mr(pool.ends[i].mr));
	CHECK(!ibv_destroy_cq(pool.ends[0].cq));
}

/* The event is reported once for each time that the queue pair fails. */
static void last_receives_are_reported_again(void)
{
	struct end a, b;
	struct ibv_async_event event;

	make(&a, 0);
	make(&b, 1);
	for (uint32_t round = 1; round < 6; round++) {
		connect_both(&a, &b);
		talk(&a, &b, round);
		CHECK(!move(&b, IBV_QPS_ERR) && !ibv_get_async_event(device, &event));
		CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == b.qp);
		ibv_ack_async_event(&event);
		reset(&b);
		reset(&a);
	}
	destroy(&a);
	destroy(&b);
}

/* One process of two, which knows the number of a datagram queue pair of the other; that is reset between its messages. */
static void half_of_datagrams(int socket, int side)
{
	enum { ROUTE = 40, ROUNDS = 20, KEY = 9 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { DEPTH, DEPTH, 1, 1, 0 }, .sq_sig_all = 1 };
	struct end end;
	struct name peer, own;
	struct ibv_ah *ah;

	open_device();
	memset(&end, 0, sizeof end);
	CHECK(end.cq = init.send_cq = init.recv_cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0));
	CHECK((end.qp = ibv_create_qp(pd, &init)) && (end.mr = ibv_reg_mr(pd, end.memory, sizeof end.memory, ACCESS)));
	own = name_of(&end);
	CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &peer, sizeof peer) == sizeof peer);
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 1 } };
	CHECK(ah = ibv_create_ah(pd, &way));
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
		struct ibv_sge in = { (uintptr_t)end.memory, SIZE + ROUTE, end.mr->lkey }, out = { (uintptr_t)end.memory, SIZE, end.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = (uint64_t)round << 8, .sg_list = &in, .num_sge = 1 }, *bad;
		struct ibv_send_wr to = { .wr_id = (uint64_t)round << 8, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = round, .sg_list = &out,
			.num_sge = 1, .wr.ud = { ah, peer.qp_num, KEY } }, *wrong;

		CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
		for (int i = 0; i < 3; i++)
			CHECK(!ibv_post_recv(end.qp, &wr, &bad));
		attr.qp_state = IBV_QPS_RTR;
		CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE));
		attr.qp_state = IBV_QPS_RTS;
		CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
		word(socket, 'r');
		if (side == (int)(round & 1)) {
			CHECK(!ibv_post_send(end.qp, &to, &wrong) && next(&end, round).opcode == IBV_WC_SEND);
		} else {
			struct ibv_wc wc = next(&end, round);

			CHECK(wc.opcode == IBV_WC_RECV && wc.imm_data == round && wc.src_qp == peer.qp_num && wc.byte_len == SIZE + ROUTE);
		}
		word(socket, 't');
		reset(&end);
	}
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(end.qp) && !ibv_destroy_cq(end.cq) && !ibv_dereg_mr(end.mr));
}

/* The ends of a librdmacm connection, and their queue pairs. */
struct linked {
	struct rdma_cm_id *at, *to, *from;
	struct end *a, *b;
};

static void add_qp(struct rdma_cm_id *id, struct end *end)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 }, .sq_sig_all = 1 };

	memset(end, 0, sizeof *end);
	CHECK(end->cq = init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, NULL, 0));
	CHECK(end->mr = ibv_reg_mr(id->pd, end->memory, sizeof end->memory, ACCESS));
	CHECK(!rdma_create_qp(id, id->pd, &init) && (end->qp = id->qp));
}

static void by_hand(struct rdma_cm_id *id, struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask) && !ibv_modify_qp(end->qp, &attr, mask));
}

/* Connects two new queue pairs, or two existing ones by hand. */
static struct linked link_up(struct end *a, struct end *b, int are_made)
{
	struct sockaddr_in addr = here(0);
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct linked linked = { .a = a, .b = b };

	CHECK(!rdma_create_id(channel, &linked.at, NULL, RDMA_PS_TCP) && !rdma_bind_addr(linked.at, (struct sockaddr *)&addr));
	CHECK(!rdma_listen(linked.at, 4));
	linked.to = resolved(RDMA_PS_TCP, rdma_get_src_port(linked.at));
	if (are_made) {
		param.qp_num = a->qp->qp_num;
		by_hand(linked.to, a, IBV_QPS_INIT);
	} else {
		add_qp(linked.to, a);
	}
	CHECK(!rdma_connect(linked.to, &param));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	linked.from = event->id;
	CHECK(!rdma_ack_cm_event(event));
	if (are_made) {
		param.qp_num = b->qp->qp_num;
		for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
			by_hand(linked.from, b, state);
	} else {
		add_qp(linked.from, b);
	}
	CHECK(!rdma_accept(linked.from, &param));
	for (int i = 0; i < 2; i++) {
		event = any_event(channel);
		if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
			by_hand(linked.to, a, IBV_QPS_RTR);
			by_hand(linked.to, a, IBV_QPS_RTS);
			CHECK(!rdma_establish(linked.to));
		} else {
			CHECK(event->event == RDMA_CM_EVENT_ESTABLISHED);
		}
		CHECK(!rdma_ack_cm_event(event));
	}
	return linked;
}

static void both_part(void)
{
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED)));
}

static void destroy_ids(struct linked linked)
{
	CHECK(!rdma_destroy_id(linked.to) && !rdma_destroy_id(linked.from) && !rdma_destroy_id(linked.at));
}

/* Queue pairs of identifiers, after their connection has ended and while it is established, and queue pairs that one identifier after
   another connects. */
static void by_librdmacm(void)
{
	struct end a, b;
	struct linked linked = link_up(&a, &b, 0), next;

	talk(&a, &b, 1);
	CHECK(!rdma_disconnect(linked.to));
	both_part();
	CHECK(state_of(&a) == IBV_QPS_ERR && state_of(&b) == IBV_QPS_ERR);
	for (uint32_t round = 2; round < 10; round++) {
		reset(&a);
		reset(&b);
		if (round & 1) {
			connect_both(&a, &b);
			talk(&a, &b, round);
			continue;
		}
		next = link_up(&a, &b, 1);
		talk(&a, &b, round);
		for (int i = 0; i < DEPTH / 2; i++)
			CHECK(!receive(&b, round, i) && !post(&a, round, i));
		if (round & 2) {
			CHECK(!rdma_disconnect(next.from));
			both_part();
		} else {
			/* That ends the connection, which both identifiers report. */
			reset(&a);
			reset(&b);
			both_part();
		}
		destroy_ids(next);
	}
	rdma_destroy_qp(linked.to);
	rdma_destroy_qp(linked.from);
	CHECK(!ibv_destroy_cq(a.cq) && !ibv_destroy_cq(b.cq) && !ibv_dereg_mr(a.mr) && !ibv_dereg_mr(b.mr));
	destroy_ids(linked);
}

/* A reset needs one more queue pair of the device. If there is none, it fails, and the queue pair is unchanged. */
static void full_device(void)
{
	enum { MOST = 10000 };
	static struct ibv_qp *others[MOST];
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct end end;
	int count = 0;

	make(&end, 0);
	to_init(&end);
	CHECK(!receive(&end, 1, 0));
	init.send_cq = init.recv_cq = end.cq;
	while (count < MOST && (others[count] = ibv_create_qp(pd, &init)))
		count++;
	CHECK(count && count < MOST && errno == EINVAL);
	CHECK(move(&end, IBV_QPS_RESET) == EINVAL && state_of(&end) == IBV_QPS_INIT);
	CHECK(!ibv_destroy_qp(others[--count]));
	reset(&end);
	connects_to(&end, name_of(&end));
	CHECK(move(&end, IBV_QPS_RESET) == EINVAL && state_of(&end) == IBV_QPS_RTS);
	while (count)
		CHECK(!ibv_destroy_qp(others[--count]));
	reset(&end);
	destroy(&end);
}

int main(void)
{
	puts("a peer in another process still sends");
	in_two_processes(half_that_sends_or_resets);
	puts("datagrams of another process");
	in_two_processes(half_of_datagrams);
	CHECK(channel = rdma_create_event_channel());
	puts("a peer still sends");
	peer_still_sends();
	puts("one queue for all");
	one_queue_for_all();
	puts("last receives are reported again");
	last_receives_are_reported_again();
	puts("by librdmacm");
	by_librdmacm();
	puts("nothing leaks");
	nothing_leaks();
	puts("a full device");
	full_device();
	puts("all used again");
	return 0;
}
