/* Memory windows of both types, by requests and by calls: range, rights and owner at the target, and regions that have windows. */
/* A program here uses a part of reset.h. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "reset.h"

static struct end a, b;
static char memory[256];
static struct ibv_mr *mr;

static struct ibv_wc take(struct end *end)
{
	struct ibv_wc wc;
	time_t limit = time(NULL) + LIMIT_S;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		CHECK(time(NULL) < limit);
	return wc;
}

/* Writes eight bytes of end a to this place of the memory of end b; returns the status. */
static enum ibv_wc_status write_to(int at, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, 8, a.mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { (uintptr_t)memory + at, rkey } }, *bad;

	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	return take(&a).status;
}

static void join(void)
{
	reset(&a);
	reset(&b);
	connects_to(&a, name_of(&b));
	connects_to(&b, name_of(&a));
}

static struct ibv_mw_bind_info middle(unsigned int rights)
{
	return (struct ibv_mw_bind_info){ mr, (uintptr_t)memory + 64, 64, rights };
}

static void type_1(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 5, .send_flags = IBV_SEND_SIGNALED, .bind_info = middle(IBV_ACCESS_REMOTE_WRITE) };
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .bind_mw = { .mw = mw, .bind_info = bind.bind_info } }, *bad;
	struct ibv_wc wc;

	CHECK(mw && mw->type == IBV_MW_TYPE_1 && mw->pd == pd);
	uint32_t first = mw->rkey;

	CHECK(!ibv_bind_mw(b.qp, mw, &bind) && mw->rkey != first && mw->rkey >> 8 == first >> 8);
	wc = take(&b);
	CHECK(!wc.status && wc.wr_id == 5 && wc.opcode == IBV_WC_BIND_MW);
	CHECK(ibv_dereg_mr(mr) == EBUSY && write_to(64, mw->rkey) == IBV_WC_SUCCESS && !memcmp(memory + 64, a.memory, 8));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(write_to(121, mw->rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	/* The region itself is not open to peers. */
	CHECK(write_to(64, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	/* Only windows of type 2 are bound by requests. */
	CHECK(ibv_post_send(b.qp, &wr, &bad) == EINVAL && bad == &wr);
	bind.bind_info.length = 0;
	CHECK(!ibv_bind_mw(b.qp, mw, &bind) && !take(&b).status && write_to(64, mw->rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	/* More than the region. */
	bind.bind_info.length = sizeof memory;
	CHECK(!ibv_bind_mw(b.qp, mw, &bind) && take(&b).status == IBV_WC_MW_BIND_ERR && !ibv_dealloc_mw(mw));
	join();
}

static void bind_2(struct ibv_mw *mw, uint32_t rkey, unsigned int rights)
{
	struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_BIND_MW, .bind_mw = { mw, rkey, middle(rights) } }, *bad;
	struct ibv_wc wc;

	CHECK(!ibv_post_send(b.qp, &wr, &bad) && mw->rkey == rkey);
	wc = take(&b);
	CHECK(!wc.status && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 6);
}

static void type_2(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV }, *bad;
	struct ibv_mw_bind bind = { .bind_info = middle(IBV_ACCESS_REMOTE_WRITE) };
	struct ibv_wc wc;

	CHECK(mw && ibv_bind_mw(b.qp, mw, &bind) == EINVAL);
	uint32_t rkey = ibv_inc_rkey(mw->rkey);

	bind_2(mw, rkey, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
	CHECK(write_to(120, rkey) == IBV_WC_SUCCESS && ibv_dereg_mr(mr) == EBUSY);
	wr.invalidate_rkey = rkey;
	CHECK(!ibv_post_send(b.qp, &wr, &bad));
	wc = take(&b);
	CHECK(!wc.status && wc.opcode == IBV_WC_LOCAL_INV && write_to(120, rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	bind_2(mw, rkey = ibv_inc_rkey(rkey), IBV_ACCESS_REMOTE_READ);
	CHECK(write_to(64, rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	/* The queue pair that bound it is gone with its connection: it is invalid for all, and its peer cannot invalidate it. */
	CHECK(write_to(64, rkey) == IBV_WC_REM_ACCESS_ERR && !ibv_dealloc_mw(mw));
	join();
	CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	bind_2(mw, rkey = ibv_inc_rkey(mw->rkey), IBV_ACCESS_REMOTE_WRITE);
	CHECK(!receive(&b, 1, 0));
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey };
	CHECK(!ibv_post_send(a.qp, &wr, &bad) && !take(&a).status);
	wc = take(&b);
	CHECK(!wc.status && (wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == rkey && !ibv_dealloc_mw(mw));
}

/* By the calls that build requests. */
static void built(void)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = b.cq, .recv_cq = b.cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 }, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV };
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = middle(IBV_ACCESS_REMOTE_WRITE);
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_qp *former = b.qp;
	struct ibv_qp_ex *qp;

	CHECK((b.qp = ibv_create_qp_ex(device, &init)) && (qp = ibv_qp_to_qp_ex(b.qp)));
	reset(&a);
	connects_to(&a, name_of(&b));
	connects_to(&b, name_of(&a));
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(qp, mw, rkey, &info);
	CHECK(!ibv_wr_complete(qp) && take(&b).opcode == IBV_WC_BIND_MW && write_to(64, rkey) == IBV_WC_SUCCESS);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	ibv_wr_local_inv(qp, rkey);
	CHECK(!ibv_wr_complete(qp) && take(&b).opcode == IBV_WC_LOCAL_INV && write_to(64, rkey) == IBV_WC_REM_ACCESS_ERR);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, rkey, NULL);
	CHECK(ibv_wr_complete(qp) == EINVAL && !ibv_destroy_qp(b.qp) && !ibv_dealloc_mw(mw));
	b.qp = former;
}

int main(void)
{
	open_device();
	make(&a, 0);
	make(&b, 0);
	memcpy(a.memory, "content!", 8);
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	connects_to(&a, name_of(&b));
	connects_to(&b, name_of(&a));
	CHECK(!ibv_alloc_mw(pd, 3) && errno == EINVAL);
	type_1();
	type_2();
	built();
	CHECK(!ibv_dereg_mr(mr));
	destroy(&a);
	destroy(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(device));
	puts("all windows closed");
	return 0;
}
