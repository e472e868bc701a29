/* Datagrams between queue pairs of one process: the sender, the global route header, the address handle back, drops, and the last
   datagram of a process. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { KEY = 0x1234, SIZE = 4096, ROOM = 40 + SIZE };

struct end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[2 * ROOM];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void make(struct end *end, uint32_t key)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 8, 8, 2, 2, 64 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = key };

	CHECK((end->channel = ibv_create_comp_channel(context)));
	CHECK((end->cq = ibv_create_cq(context, 32, NULL, end->channel, 0)));
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE)));
	init.send_cq = init.recv_cq = end->cq;
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL);
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void expect(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, ROOM, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

/* Sends bytes from the second half of the memory; returns the result of the post. */
static int try(struct end *end, struct ibv_ah *ah, uint32_t number, uint32_t key, int len, int opcode)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + ROOM, len, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0x01020304), .wr.ud = { .ah = ah, .remote_qpn = number, .remote_qkey = key } }, *bad;

	return ibv_post_send(end->qp, &wr, &bad);
}

static struct ibv_wc next(struct end *end)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == end->qp->qp_num);
	return wc;
}

static void send_ok(struct end *end, struct ibv_ah *ah, uint32_t number, uint32_t key, int len, int opcode)
{
	CHECK(!try(end, ah, number, key, len, opcode));
	CHECK(next(end).opcode == IBV_WC_SEND);
}

/* The destination of a child. */
struct peer {
	union ibv_gid gid;
	uint32_t number;
};

/* A child that sends one datagram when it learns the destination, and exits immediately without destroying anything. */
static int last_word(void)
{
	static struct end end;
	struct peer peer;
	int pipes[2];

	CHECK(!pipe(pipes));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child) {
		close(pipes[0]);
		return pipes[1];
	}
	close(pipes[1]);
	if (read(pipes[0], &peer, sizeof peer) != sizeof peer)
		_exit(0);
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK((context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
	make(&end, KEY);
	struct ibv_ah_attr attr = { .is_global = 1, .grh.dgid = peer.gid, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	send_ok(&end, ah, peer.number, KEY, 6, IBV_WR_SEND);
	exit(0);
}

/* Posted datagrams are sent, though their completions are not polled: these count when the queue is shortened. */
static void shorten(struct end *end, struct ibv_ah *ah)
{
	for (int count = 0; count < 6; count++)
		CHECK(!try(end, ah, 0xffffff, KEY, count, IBV_WR_SEND));
	CHECK(ibv_resize_cq(end->cq, 1) == EINVAL && ibv_resize_cq(end->cq, 5) == EINVAL && end->cq->cqe == 32);
	CHECK(!ibv_resize_cq(end->cq, 6) && end->cq->cqe == 6);
	for (int count = 0; count < 6; count++)
		CHECK(next(end).opcode == IBV_WC_SEND);
	CHECK(!ibv_resize_cq(end->cq, 1) && !ibv_resize_cq(end->cq, 32));
}

enum { CHILDREN = 6 };

static void last_words(struct end *end, const int *children)
{
	for (int child = 0; child < CHILDREN; child++) {
		struct peer peer = { gid, end->qp->qp_num };
		int status;

		expect(end);
		CHECK(write(children[child], &peer, sizeof peer) == sizeof peer);
		CHECK(next(end).byte_len == 46);
		CHECK(wait(&status) > 0 && !status);
	}
}

int main(void)
{
	int children[CHILDREN];

	for (int child = 0; child < CHILDREN; child++)
		children[child] = last_word();
	static struct end one, other;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq *cq;
	void *ignored;
	struct ibv_wc wc;

	CHECK((context = ibv_open_device(list[0])));
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	struct ibv_gid_entry entry;
	char name[IF_NAMESIZE];
	CHECK(!ibv_query_gid_ex(context, 1, 0, &entry, 0) && !memcmp(&entry.gid, &gid, 16));
	CHECK(if_indextoname(entry.ndev_ifindex, name) && !strcmp(name, "lo"));
	CHECK((pd = ibv_alloc_pd(context)));
	make(&one, KEY);
	make(&other, KEY);
	struct ibv_ah_attr attr = { .is_global = 1, .grh.dgid = gid, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr), *back;
	CHECK(ah);

	/* A full-size datagram with immediate data, and one back. */
	expect(&other);
	memset(one.memory + ROOM, 'a', SIZE);
	send_ok(&one, ah, other.qp->qp_num, KEY, SIZE, IBV_WR_SEND_WITH_IMM);
	wc = next(&other);
	CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == 7 && wc.byte_len == 40 + SIZE && wc.src_qp == one.qp->qp_num);
	CHECK((wc.wc_flags & IBV_WC_GRH) && (wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == htonl(0x01020304));
	struct ibv_grh *grh = (struct ibv_grh *)other.memory;
	CHECK(!memcmp(&grh->sgid, &gid, 16) && !memcmp(&grh->dgid, &gid, 16) && ntohs(grh->paylen) == SIZE);
	CHECK(!memcmp(other.memory + 40, one.memory + ROOM, SIZE));
	CHECK((back = ibv_create_ah_from_wc(pd, &wc, grh, 1)));
	CHECK(!ibv_create_ah_from_wc(pd, &wc, NULL, 1) && errno == EINVAL);
	expect(&one);
	send_ok(&other, back, wc.src_qp, 0x80000000, 0, IBV_WR_SEND);
	wc = next(&one);
	CHECK(wc.byte_len == 40 && wc.src_qp == other.qp->qp_num && !(wc.wc_flags & IBV_WC_WITH_IMM));

	/* No receive is posted (which is visible at the end), the Q_Key is wrong, or there is no such queue pair: all are lost, and the
	   last datagram arrives. */
	send_ok(&other, ah, one.qp->qp_num, KEY, 1, IBV_WR_SEND);
	expect(&other);
	CHECK(!ibv_req_notify_cq(other.cq, 0));
	send_ok(&one, ah, other.qp->qp_num, KEY + 1, 2, IBV_WR_SEND);
	send_ok(&one, ah, 0xffffff, KEY, 3, IBV_WR_SEND);
	send_ok(&one, ah, other.qp->qp_num, KEY, 4, IBV_WR_SEND);
	/* The program does not poll: the event arrives all the same. */
	struct pollfd fd = { .fd = other.channel->fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 10000) == 1);
	CHECK(!ibv_get_cq_event(other.channel, &cq, &ignored) && cq == other.cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(next(&other).byte_len == 44);

	/* Too long, not a send, no destination. */
	CHECK(try(&one, ah, other.qp->qp_num, KEY, SIZE + 1, IBV_WR_SEND) == EINVAL);
	CHECK(try(&one, ah, other.qp->qp_num, KEY, 1, IBV_WR_RDMA_WRITE) == EINVAL);
	CHECK(try(&one, NULL, other.qp->qp_num, KEY, 1, IBV_WR_SEND) == EINVAL);

	/* Many datagrams, in order. */
	for (int count = 0; count < 1000; count++) {
		expect(&other);
		memcpy(one.memory + ROOM, &count, sizeof count);
		send_ok(&one, ah, other.qp->qp_num, KEY, sizeof count, IBV_WR_SEND);
		CHECK(next(&other).byte_len == 44 && !memcmp(other.memory + 40, &count, sizeof count));
	}

	shorten(&one, ah);
	last_words(&other, children);

	/* A datagram dropped earlier without a receive does not arrive now. */
	expect(&one);
	send_ok(&other, ah, one.qp->qp_num, KEY, 5, IBV_WR_SEND);
	CHECK(next(&one).byte_len == 45);

	CHECK(!ibv_destroy_qp(other.qp));
	send_ok(&one, ah, wc.src_qp, KEY, 1, IBV_WR_SEND);
	CHECK(!ibv_destroy_qp(one.qp));
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_ah(back));
	CHECK(!ibv_destroy_cq(one.cq) && !ibv_destroy_cq(other.cq));
	CHECK(!ibv_dereg_mr(one.mr) && !ibv_dereg_mr(other.mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	printf("all carried\n");
	return 0;
}
