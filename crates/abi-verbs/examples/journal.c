/* Writes a journal of eight lines by RDMA writes, through a queue pair that is connected with itself. It has a bug: nicety run --check
   finds it, as docs/guides/checking.md shows. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>

enum { LINE = 32, LINES = 8 };

static char line[LINE], journal[LINES][LINE];

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

static void write_line(struct ibv_qp *qp, struct ibv_mr *source, struct ibv_mr *target, int number)
{
	struct ibv_sge sge = { (uintptr_t)line, LINE, source->lkey };
	struct ibv_send_wr write = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)journal[number], target->rkey } }, *bad;

	snprintf(line, LINE, "entry %d", number);
	if (ibv_post_send(qp, &write, &bad))
		perror("ibv_post_send");
}

static int wait_for(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		int found = ibv_poll_cq(cq, 1, &wc);
		if (found < 0 || (found && wc.status != IBV_WC_SUCCESS))
			return 1;
		count -= found;
	}
	return 0;
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(devices[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, LINES, NULL, NULL, 0);
	struct ibv_mr *source = ibv_reg_mr(pd, line, sizeof line, 0);
	struct ibv_mr *target = ibv_reg_mr(pd, journal, sizeof journal, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { LINES, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	ibv_free_device_list(devices);
	if (connect_with_itself(context, qp)) {
		perror("connecting");
		return 1;
	}
	write_line(qp, source, target, 0);
	if (wait_for(cq, 1))
		return 1;
	for (int number = 1; number < LINES; number++)
		write_line(qp, source, target, number);
	if (wait_for(cq, LINES - 1))
		return 1;
	printf("%s, %s ... %s\n", journal[0], journal[1], journal[LINES - 1]);
	return ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dereg_mr(source) || ibv_dereg_mr(target) || ibv_dealloc_pd(pd) ||
		ibv_close_device(context);
}
