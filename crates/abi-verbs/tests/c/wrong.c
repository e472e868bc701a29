/* Programs that use verbs in a wrong way, a mistake each; most of them work all the same, on this device and on others, by luck. Those
   that begin with "clean" make none. What is created is destroyed in the end, except where that is the mistake. */
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cm.h"

#define BYTES 65536
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	_Alignas(4096) char memory[BYTES];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *events;
static union ibv_gid gid;
static struct end a, b;
/* What a scenario may choose. */
static int cqe = 64, rights = RIGHTS, rnr_retry = 7;
static uint32_t inline_bytes = 64, elements = 4;

static void make(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };

	CHECK((end->cq = ibv_create_cq(context, cqe, NULL, events, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .cap = { 16, 16, elements, 4, inline_bytes },
	};
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, BYTES, rights)));
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void join(struct end *end, struct end *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp->qp_num, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 1 }, .port_num = 1 },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry, .max_rd_atomic = 4 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Connects both ends. */
static void connect_ends(void)
{
	make(&a);
	make(&b);
	join(&a, &b);
	join(&b, &a);
}

static void end_qp(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_cq(end->cq));
}

/* Destroys both ends. */
static void end_both(void)
{
	end_qp(&a);
	end_qp(&b);
	CHECK((!a.mr || !ibv_dereg_mr(a.mr)) && (!b.mr || !ibv_dereg_mr(b.mr)));
}

static struct ibv_sge part(struct end *end, int at, int length)
{
	return (struct ibv_sge){ (uintptr_t)end->memory + at, length, end->mr->lkey };
}

static int post(struct end *end, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count, unsigned flags)
{
	struct end *other = end == &a ? &b : &a;
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = sges, .num_sge = count, .opcode = opcode, .send_flags = flags }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)other->memory;
		wr.wr.atomic.rkey = other->mr->rkey;
	} else if (other->mr) {
		wr.wr.rdma.remote_addr = (uintptr_t)other->memory;
		wr.wr.rdma.rkey = other->mr->rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

static void send_part(int at, int length)
{
	struct ibv_sge sge = part(&a, at, length);

	CHECK(!post(&a, IBV_WR_SEND, &sge, 1, IBV_SEND_SIGNALED));
}

static void write_part(int at, int length, unsigned flags)
{
	struct ibv_sge sge = part(&a, at, length);

	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, flags));
}

static void read_part(int at, int length)
{
	struct ibv_sge sge = part(&a, at, length);

	CHECK(!post(&a, IBV_WR_RDMA_READ, &sge, 1, IBV_SEND_SIGNALED));
}

static void receive_part(int at, int length)
{
	struct ibv_sge sge = part(&b, at, length);
	struct ibv_recv_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(b.qp, &wr, &bad));
}

/* Waits for completions of an end, which it takes by one call; returns the status of the last. */
static enum ibv_wc_status wait_for(struct end *end, int count)
{
	struct ibv_wc wcs[16];

	for (int found = 0; !found; )
		CHECK((found = ibv_poll_cq(end->cq, count, wcs)) >= 0);
	return wcs[0].status;
}

static void send_buffer(void)
{
	receive_part(0, 64);
	send_part(0, 64);
	a.memory[3] = 'x';
	wait_for(&a, 1);
	wait_for(&b, 1);
}

static void second_element(void)
{
	struct ibv_sge sges[] = { part(&a, 0, 100), part(&a, 1000, 100) };

	CHECK(!post(&a, IBV_WR_RDMA_WRITE, sges, 2, IBV_SEND_SIGNALED));
	a.memory[1099] = 'x';
	wait_for(&a, 1);
}

static void unsignaled_buffer(void)
{
	write_part(0, 64, 0);
	a.memory[0] = 'x';
	write_part(64, 64, IBV_SEND_SIGNALED);
	wait_for(&a, 1);
}

static void large_buffer(void)
{
	write_part(0, 32768, IBV_SEND_SIGNALED);
	memset(a.memory + 20000, 'x', 16);
	wait_for(&a, 1);
}

static void receive_buffer(void)
{
	receive_part(0, 64);
	memset(b.memory, 'x', 64);
	send_part(0, 8);
	wait_for(&a, 1);
	wait_for(&b, 1);
}

static void reads_overlap(void)
{
	read_part(0, 64);
	read_part(32, 64);
	wait_for(&a, 1);
	wait_for(&a, 1);
}

static void sent_while_read(void)
{
	read_part(0, 64);
	write_part(32, 64, IBV_SEND_SIGNALED);
	wait_for(&a, 1);
	wait_for(&a, 1);
}

static void receives_share(void)
{
	receive_part(0, 64);
	receive_part(32, 64);
	send_part(0, 64);
	send_part(0, 64);
	wait_for(&a, 1);
	wait_for(&a, 1);
	usleep(100000);
	wait_for(&b, 2);
}

static void stale_lkey(void)
{
	struct ibv_sge sge = part(&a, 0, 64);

	CHECK(!ibv_dereg_mr(a.mr));
	a.mr = NULL;
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) == IBV_WC_LOC_PROT_ERR);
}

static void stale_rkey(void)
{
	struct ibv_mr stale = *b.mr, *own = b.mr;
	struct ibv_sge sge = part(&a, 0, 64);

	CHECK(!ibv_dereg_mr(own));
	b.mr = &stale;
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) == IBV_WC_REM_ACCESS_ERR);
	b.mr = NULL;
}

static void unknown_lkey(void)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, 64, 0x1234 };

	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) == IBV_WC_LOC_PROT_ERR);
}

static void beyond_region(void)
{
	write_part(BYTES - 32, 64, IBV_SEND_SIGNALED);
	CHECK(wait_for(&a, 1) == IBV_WC_LOC_PROT_ERR);
}

static void read_only_region(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, a.memory, 64, 0);
	struct ibv_sge sge = { (uintptr_t)a.memory, 64, mr->lkey };

	CHECK(!post(&a, IBV_WR_RDMA_READ, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) == IBV_WC_LOC_PROT_ERR && !ibv_dereg_mr(mr));
}

static void no_remote_write(void)
{
	struct ibv_mr *all = b.mr;
	struct ibv_sge sge = part(&a, 0, 64);

	CHECK((b.mr = ibv_reg_mr(pd, b.memory, 64, IBV_ACCESS_LOCAL_WRITE)));
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(all));
}

static void *pages(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static void unmapped_at_post(void)
{
	void *memory = pages(8192);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)memory + 4096, 64, mr->lkey };

	CHECK(!munmap((char *)memory + 4096, 4096));
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED));
	CHECK(wait_for(&a, 1) != IBV_WC_SUCCESS);
	/* As the region is gone, it cannot be deregistered without a second finding. */
	_exit(!fflush(stdout) ? 9 : 1);
}

static void unmapped_at_end(void)
{
	void *memory = pages(1 << 20);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE);

	CHECK(!munmap(memory, 1 << 20) && !ibv_dereg_mr(mr));
}

static void freed_at_end(void)
{
	/* malloc maps such blocks one by one, and free unmaps them. */
	void *memory = malloc(8 << 20);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8 << 20, IBV_ACCESS_LOCAL_WRITE);

	free(memory);
	CHECK(!ibv_dereg_mr(mr));
}

static void region_in_use(void)
{
	write_part(0, 64, IBV_SEND_SIGNALED);
	CHECK(!ibv_dereg_mr(a.mr));
	a.mr = NULL;
	wait_for(&a, 1);
}

static void atomic_of_four_bytes(void)
{
	struct ibv_sge sge = part(&a, 0, 4);

	/* Some devices refuse the call, others the request. */
	if (!post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, IBV_SEND_SIGNALED))
		CHECK(wait_for(&a, 1) != IBV_WC_SUCCESS);
}

static void never_signaled(void)
{
	struct ibv_sge sge = part(&a, 0, 8);

	for (int i = 0; i < 1000; i++)
		if (post(&a, IBV_WR_RDMA_WRITE, &sge, 1, 0))
			return;
	CHECK(!"the queue is never full");
}

static void small_queue(void)
{
	for (int i = 0; i < 12; i++)
		receive_part(64 * i, 64);
}

static void no_receive(void)
{
	send_part(0, 64);
	CHECK(wait_for(&a, 1) == IBV_WC_RNR_RETRY_EXC_ERR);
}

static void short_receive(void)
{
	receive_part(0, 16);
	send_part(0, 64);
	CHECK(wait_for(&b, 1) == IBV_WC_LOC_LEN_ERR);
}

static void *acknowledge_late(void *cq)
{
	usleep(300000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void unacknowledged(void)
{
	struct ibv_cq *cq;
	void *own;
	pthread_t thread;

	CHECK(!ibv_req_notify_cq(a.cq, 0));
	write_part(0, 64, IBV_SEND_SIGNALED);
	CHECK(!ibv_get_cq_event(events, &cq, &own) && cq == a.cq);
	wait_for(&a, 1);
	CHECK(!pthread_create(&thread, NULL, acknowledge_late, cq));
}

static void *leave(void *unused)
{
	usleep(300000);
	_exit(9);
	return unused;
}

static void not_armed(void)
{
	struct ibv_cq *cq;
	void *own;
	pthread_t thread;

	write_part(0, 64, IBV_SEND_SIGNALED);
	CHECK(!pthread_create(&thread, NULL, leave, NULL));
	CHECK(!ibv_get_cq_event(events, &cq, &own));
}

static void *acknowledge_cm(void *event)
{
	usleep(300000);
	CHECK(!rdma_ack_cm_event(event));
	return NULL;
}

static void cm_unacknowledged(void)
{
	struct sockaddr_in addr = here(htons(7));
	struct rdma_cm_id *id;
	pthread_t thread;

	CHECK((channel = rdma_create_event_channel()) && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000));
	CHECK(!pthread_create(&thread, NULL, acknowledge_cm, take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void cm_leak(void)
{
	struct rdma_cm_id *id;

	CHECK((channel = rdma_create_event_channel()) && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_destroy_id(id));
}

static void region_leak(void)
{
	for (int i = 0; i < 3; i++)
		CHECK(ibv_reg_mr(pd, a.memory, 64, 0));
}

static void private_data(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 4, 4, 64 } };
	struct rdma_conn_param param = { .private_data = a.memory, .private_data_len = 100 };

	CHECK((channel = rdma_create_event_channel()));
	struct rdma_cm_id *id = resolved(RDMA_PS_TCP, htons(7));
	CHECK(!rdma_create_qp(id, NULL, &init) && !rdma_connect(id, &param));
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void many_elements(void)
{
	struct ibv_sge sges[14];
	struct ibv_device_attr attr;

	CHECK(!ibv_query_device(context, &attr) && attr.max_sge == 13);
	for (int i = 0; i < 14; i++)
		sges[i] = part(&a, 64 * i, 8);
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, sges, 14, IBV_SEND_SIGNALED));
	wait_for(&a, 1);
}

static void much_inline(void)
{
	struct ibv_sge sge = part(&a, 0, 200);

	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	a.memory[0] = 'x';
	wait_for(&a, 1);
}

static void nothing_special(void)
{
}

/* Everything that the others do wrong, as it is right. */
static void clean(void)
{
	struct ibv_sge sges[] = { part(&a, 0, 100), part(&a, 1000, 100) }, word = part(&a, 2048, 8);
	struct ibv_cq *cq;
	void *own;

	receive_part(0, 64);
	receive_part(64, 64);
	send_part(0, 64);
	wait_for(&a, 1);
	a.memory[3] = 'x';
	send_part(0, 8);
	wait_for(&a, 1);
	wait_for(&b, 1);
	b.memory[0] = 'x';
	while (!ibv_poll_cq(b.cq, 1, &(struct ibv_wc){}))
		;
	memset(b.memory, 'y', 128);
	for (int i = 0; i < 100; i++) {
		write_part(4096 + 64 * (i % 16), 64, 0);
		CHECK(!post(&a, IBV_WR_RDMA_WRITE, sges, 2, IBV_SEND_SIGNALED));
		wait_for(&a, 1);
		memset(a.memory, i, BYTES);
	}
	read_part(8192, 4096);
	read_part(12288, 4096);
	CHECK(!post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, &word, 1, IBV_SEND_SIGNALED));
	for (int found = 0; found < 3;)
		found += ibv_poll_cq(a.cq, 3, (struct ibv_wc[3]){});
	memset(a.memory, 'z', BYTES);
	CHECK(!ibv_req_notify_cq(a.cq, 0));
	write_part(0, 64, IBV_SEND_SIGNALED);
	CHECK(!ibv_get_cq_event(events, &cq, &own));
	ibv_ack_cq_events(cq, 1);
	wait_for(&a, 1);
	struct ibv_sge gone = { (uintptr_t)(char[64]){}, 64, 0 };
	CHECK(!post(&a, IBV_WR_RDMA_WRITE, &gone, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	wait_for(&a, 1);
}

static const struct {
	const char *name;
	void (*run)(void);
} SCENARIOS[] = {
	{ "send_buffer", send_buffer }, { "second_element", second_element }, { "unsignaled_buffer", unsignaled_buffer },
	{ "large_buffer", large_buffer }, { "receive_buffer", receive_buffer }, { "reads_overlap", reads_overlap },
	{ "sent_while_read", sent_while_read }, { "receives_share", receives_share }, { "stale_lkey", stale_lkey },
	{ "stale_rkey", stale_rkey }, { "unknown_lkey", unknown_lkey }, { "beyond_region", beyond_region },
	{ "read_only_region", read_only_region }, { "no_remote_write", no_remote_write }, { "unmapped_at_post", unmapped_at_post },
	{ "unmapped_at_end", unmapped_at_end }, { "freed_at_end", freed_at_end }, { "region_in_use", region_in_use },
	{ "atomic_of_four_bytes", atomic_of_four_bytes }, { "never_signaled", never_signaled }, { "small_queue", small_queue },
	{ "no_receive", no_receive }, { "short_receive", short_receive }, { "unacknowledged", unacknowledged },
	{ "not_armed", not_armed }, { "cm_unacknowledged", cm_unacknowledged }, { "cm_leak", cm_leak },
	{ "region_leak", region_leak }, { "private_data", private_data }, { "many_elements", many_elements },
	{ "much_inline", much_inline }, { "qp_leak", nothing_special }, { "clean", clean },
};

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(argc == 2 && devices && devices[0] && (context = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	CHECK((pd = ibv_alloc_pd(context)) && !ibv_query_gid(context, 1, 0, &gid) && (events = ibv_create_comp_channel(context)));
	if (!strcmp(argv[1], "small_queue"))
		cqe = 8;
	if (!strcmp(argv[1], "no_receive"))
		rnr_retry = 0;
	if (!strcmp(argv[1], "many_elements"))
		elements = 14;
	if (!strcmp(argv[1], "much_inline"))
		inline_bytes = 200;
	connect_ends();
	for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
		if (!strcmp(argv[1], SCENARIOS[i].name)) {
			SCENARIOS[i].run();
			printf("done\n");
			if (!strcmp(argv[1], "qp_leak"))
				return 0;
			end_both();
			CHECK(!ibv_destroy_comp_channel(events) && (!ibv_dealloc_pd(pd) || !strcmp(argv[1], "region_leak")) && !ibv_close_device(context));
			return 0;
		}
	return 1;
}
