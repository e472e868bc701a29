/* Copies COUNT pieces of 4 KiB by RDMA writes, through a queue pair that is connected with itself, and waits until the last one has
   arrived. It has a bug: nicety run --trace finds it, as docs/guides/tracing.md shows. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4096, DEPTH = 64, PIECES_MAX = 1024 };

static char from[PIECES_MAX * PIECE];
static volatile char to[PIECES_MAX * PIECE];

static int connect_with_itself(struct ibv_context *context, struct ibv_qp *qp)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1 } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	return ibv_query_gid(context, 1, 0, &rtr.ah_attr.grh.dgid) ||
		ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
		ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
		ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 16;
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	struct ibv_mr *source = ibv_reg_mr(pd, from, sizeof from, 0);
	struct ibv_mr *target = ibv_reg_mr(pd, (void *)to, sizeof to, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { DEPTH, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (count < 1 || count > PIECES_MAX || connect_with_itself(context, qp)) {
		perror("connecting");
		return 1;
	}
	memset(from, 'x', sizeof from);
	for (int piece = 0; piece < count; piece++) {
		struct ibv_sge sge = { (uintptr_t)from + piece * PIECE, PIECE, source->lkey };
		struct ibv_send_wr write = { .wr_id = piece, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			/* The completion of the first write shows that the connection is established. */
			.send_flags = piece == 0 ? IBV_SEND_SIGNALED : 0,
			.wr.rdma = { (uintptr_t)to + piece * PIECE, target->rkey } };
		if (ibv_post_send(qp, &write, &bad)) {
			perror("ibv_post_send");
			return 1;
		}
		if (write.send_flags & IBV_SEND_SIGNALED)
			while (!ibv_poll_cq(cq, 1, &wc))
				;
	}
	while (to[count * PIECE - 1] != 'x')
		;
	printf("copied %d pieces\n", count);
	return 0;
}
