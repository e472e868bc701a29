/* The GID table as cards have it for RoCE v2: link-local, and the IPv4 address. Two processes that exchange the address and their queue
   pair numbers find each other, connected and by datagrams. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { KEY = 0x1234, GRH = 40, INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];
static union ibv_gid gids[2];

/* The data that the processes exchange. */
struct side {
	union ibv_gid gids[2];
	uint32_t connected, datagrams;
};

static void open_device(void)
{
	struct ibv_port_attr port;

	CHECK((context = ibv_open_device(ibv_get_device_list(NULL)[0])));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
	CHECK(!ibv_query_port(context, 1, &port) && port.gid_tbl_len == 2);
	for (int at = 0; at < 2; at++)
		CHECK(!ibv_query_gid(context, 1, at, &gids[at]));
}

/* The GID table as reported by the kernel's functions, each in its own way. */
static void is_described(void)
{
	struct ibv_gid_entry entries[4], entry;
	struct in_addr ip;
	char name[IF_NAMESIZE];
	union ibv_gid none;
	int (*kind)(struct ibv_context *, uint8_t, unsigned, int *);
	int found;

	CHECK(ibv_query_gid_table(context, entries, 4, 0) == 2);
	for (unsigned at = 0; at < 2; at++) {
		CHECK(!ibv_query_gid_ex(context, 1, at, &entry, 0) && !memcmp(&entry, &entries[at], sizeof entry));
		CHECK(!memcmp(&entry.gid, &gids[at], 16) && entry.gid_index == at && entry.port_num == 1);
		CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && if_indextoname(entry.ndev_ifindex, name));
	}
	extern int ibv_query_gid_type(struct ibv_context *, uint8_t, unsigned, int *);
	kind = ibv_query_gid_type;
	CHECK(!kind(context, 1, 1, &found) && found == 1 && kind(context, 1, 2, &found) == -1);
	CHECK(ibv_query_gid(context, 1, 2, &none) == -1 && ibv_query_gid_ex(context, 1, 2, &entry, 0) == EINVAL);
	CHECK(IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)&gids[0]) && IN6_IS_ADDR_V4MAPPED((struct in6_addr *)&gids[1]));
	memcpy(&ip, &gids[1].raw[12], 4);
	CHECK(!strncmp(inet_ntoa(ip), "127.0.0.", 8));
}

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && !ibv_modify_qp(qp, &attr, INIT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	return qp;
}

static int to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, int own, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = *gid, .sgid_index = own, .hop_limit = 1 }, .port_num = 1 },
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

static void expect(struct ibv_qp *qp, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)memory, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void send_one(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t number)
{
	struct ibv_sge sge = { (uintptr_t)memory + 2048, 7, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = number;
		wr.wr.ud.remote_qkey = KEY;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* Takes this many completions, all successful; returns the receive among them, if there is one. */
static struct ibv_wc take(int count)
{
	struct ibv_wc found = { 0 }, wc;

	while (count) {
		int got = ibv_poll_cq(cq, 1, &wc);
		CHECK(got >= 0);
		if (!got)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode & IBV_WC_RECV)
			found = wc;
		count--;
	}
	return found;
}

/* One end of a connection: each sends and receives. */
static void talk(struct ibv_qp *qp)
{
	to_rts(qp);
	send_one(qp, NULL, 0);
	CHECK(take(2).byte_len == 7);
	CHECK(!ibv_destroy_qp(qp));
}

/* A barrier between the two processes, over a socket. */
static void meet(int fd)
{
	char byte = 0;

	CHECK(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
}

static void exchange(int fd, const struct side *own, struct side *peer)
{
	CHECK(write(fd, own, sizeof *own) == sizeof *own && read(fd, peer, sizeof *peer) == sizeof *peer);
}

/* Each connects to the peer's GID with index `by`, from its own with index `from`; then they exchange datagrams by addresses in both
   directions. */
static void run(int fd, int is_first, int by, int from)
{
	struct ibv_qp *connected = make(IBV_QPT_RC), *datagrams = make(IBV_QPT_UD);
	struct side own = { { gids[0], gids[1] }, connected->qp_num, datagrams->qp_num }, peer;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };

	exchange(fd, &own, &peer);
	expect(connected, 64);
	CHECK(!to_rtr(connected, &peer.gids[by], from, peer.connected));
	talk(connected);

	CHECK(!ibv_modify_qp(datagrams, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(datagrams, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	struct ibv_ah_attr to = { .is_global = 1, .grh = { .dgid = peer.gids[by], .sgid_index = from }, .port_num = 1 };
	struct ibv_ah *ah = is_first ? ibv_create_ah(pd, &to) : NULL;
	CHECK(ah || !is_first);
	expect(datagrams, GRH + 64);
	meet(fd);
	if (is_first) {
		send_one(datagrams, ah, peer.datagrams);
		CHECK(take(2).src_qp == peer.datagrams);
	} else {
		struct ibv_wc wc = take(1);
		struct ibv_grh *grh = (struct ibv_grh *)memory;
		CHECK(wc.src_qp == peer.datagrams && !memcmp(&grh->sgid, &peer.gids[from], 16) && !memcmp(&grh->dgid, &gids[from], 16));
		CHECK(!ibv_init_ah_from_wc(context, 1, &wc, grh, &to) && to.grh.sgid_index == from);
		CHECK((ah = ibv_create_ah(pd, &to)));
		send_one(datagrams, ah, wc.src_qp);
		take(1);
	}
	meet(fd);
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(datagrams));
}

/* Numbers and indices that identify nothing. */
static void refuse(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC);
	struct ibv_ah_attr to = { .is_global = 1, .grh = { .dgid = gids[1], .sgid_index = 2 }, .port_num = 1 };

	CHECK(to_rtr(qp, &gids[1], 1, 5) == EINVAL && to_rtr(qp, &gids[1], 1, 0xffffff) == EINVAL);
	CHECK(to_rtr(qp, &gids[1], 2, qp->qp_num) == EINVAL && !ibv_create_ah(pd, &to) && errno == EINVAL);
	/* A queue pair connected to itself, by the address. */
	expect(qp, 64);
	CHECK(!to_rtr(qp, &gids[1], 1, qp->qp_num));
	talk(qp);
}

/* On a device that reaches only this host, another host's address is reported as unreachable, and any address of this host works. */
static void of_this_host_alone(void)
{
	union ibv_gid elsewhere = gids[1];
	struct ibv_qp *qp = make(IBV_QPT_RC);

	inet_pton(AF_INET, "203.0.113.7", &elsewhere.raw[12]);
	CHECK(to_rtr(qp, &elsewhere, 1, qp->qp_num) == ENETUNREACH);
	inet_pton(AF_INET, "127.0.0.9", &elsewhere.raw[12]);
	expect(qp, 64);
	CHECK(!to_rtr(qp, &elsewhere, 1, qp->qp_num));
	talk(qp);
}

int main(int count, char **arguments)
{
	int ends[2], status;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t child = fork();
	CHECK(child >= 0);
	open_device();
	is_described();
	for (int by = 0; by < 2; by++)
		for (int from = 0; from < 2; from++)
			for (int again = 0; again < 2; again++)
				run(ends[!child], (child == 0) != again, by, from);
	/* A child has its own identity, and so has its child. */
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && !status);
	refuse();
	if (count > 1 && !strcmp(arguments[1], "shm"))
		of_this_host_alone();
	printf("all found\n");
	return 0;
}
