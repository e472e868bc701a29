/* Regions at other addresses, on demand and of all memory, changed regions, and parent domains, between two queue pairs of one process. */
/* A program here uses a part of reset.h. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include <sys/mman.h>

#include "reset.h"

static struct end a, b;

/* Writes eight bytes of end a to this address of end b; returns the status. */
static enum ibv_wc_status write_to(uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, 8, a.mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .wr.rdma = { addr, rkey } }, *bad;
	struct ibv_wc wc;
	time_t limit = time(NULL) + LIMIT_S;

	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	while (!ibv_poll_cq(a.cq, 1, &wc))
		CHECK(time(NULL) < limit);
	return wc.status;
}

static void join(void)
{
	reset(&a);
	reset(&b);
	connects_to(&a, name_of(&b));
	connects_to(&b, name_of(&a));
}

static void addresses(void)
{
	static char memory[64];
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, memory, sizeof memory, 1 << 20, ACCESS);

	CHECK(mr && mr->addr == memory && write_to((1 << 20) + 8, mr->rkey) == IBV_WC_SUCCESS && !memcmp(memory + 8, a.memory, 8));
	CHECK(write_to((uintptr_t)memory, mr->rkey) == IBV_WC_REM_ACCESS_ERR && !ibv_dereg_mr(mr));
	join();
	memset(memory, 0, sizeof memory);
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS | IBV_ACCESS_ZERO_BASED)) && write_to(56, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory + 56, a.memory, 8) && write_to(57, mr->rkey) == IBV_WC_REM_ACCESS_ERR && !ibv_dereg_mr(mr));
	join();
}

static void on_demand(void)
{
	enum { PAGES = 8192 };
	struct ibv_device_attr_ex attr;
	char *memory = mmap(NULL, PAGES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t at = (uintptr_t)memory;
	struct ibv_sge sge = { at + 5, 100, 0 };
	struct ibv_mr *mr, *all;

	CHECK(!ibv_query_device_ex(device, NULL, &attr) && attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
	CHECK(memory != MAP_FAILED && !ibv_reg_mr(pd, memory, PAGES, ACCESS) && errno == EFAULT);
	CHECK((mr = ibv_reg_mr(pd, memory, PAGES, ACCESS | IBV_ACCESS_ON_DEMAND)) && write_to(at, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	CHECK(!mprotect(memory, PAGES, PROT_READ | PROT_WRITE) && write_to(at, mr->rkey) == IBV_WC_SUCCESS && !memcmp(memory, a.memory, 8));
	sge.lkey = mr->lkey;
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) && ibv_advise_mr(pd, 99, 0, &sge, 1) == EOPNOTSUPP);
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &sge, 1) == EINVAL && ibv_advise_mr(pd, 0, 0, &sge, 0) == EINVAL);
	/* All memory, for own requests; peers have no right to it. */
	CHECK((all = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND)) && all->length == SIZE_MAX);
	struct ibv_mr *own = a.mr;

	a.mr = all;
	CHECK(write_to(at + 8, mr->rkey) == IBV_WC_SUCCESS && !memcmp(memory + 8, a.memory, 8));
	a.mr = own;
	CHECK(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EOPNOTSUPP);
	CHECK(write_to(at, all->rkey) == IBV_WC_REM_ACCESS_ERR && !ibv_dereg_mr(all) && !ibv_dereg_mr(mr) && !munmap(memory, PAGES));
	CHECK(!ibv_reg_mr(pd, a.memory, SIZE_MAX, IBV_ACCESS_ON_DEMAND) && errno == EINVAL);
	join();
}

static void changes(void)
{
	static char first[64], second[128];
	uint64_t at = (uintptr_t)first;
	struct ibv_pd *other = ibv_alloc_pd(device);
	struct ibv_mr *mr = ibv_reg_mr(pd, first, sizeof first, ACCESS);
	uint32_t rkey = mr->rkey;

	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_INPUT);
	CHECK(write_to(at, rkey) == IBV_WC_SUCCESS);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) && mr->rkey == rkey);
	CHECK(write_to(at, rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, second, sizeof second, ACCESS));
	CHECK(mr->addr == second && mr->length == sizeof second && write_to((uintptr_t)second + 120, rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(second + 120, a.memory, 8) && write_to(at, rkey) == IBV_WC_REM_ACCESS_ERR);
	join();
	/* The domain that the region is in now cannot be destroyed. */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) && mr->pd == other && ibv_dealloc_pd(other) == EBUSY);
	CHECK(write_to((uintptr_t)second, rkey) == IBV_WC_REM_ACCESS_ERR && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(other));
	join();
}

static void *no_alloc(struct ibv_pd *of, void *context, size_t size, size_t alignment, uint64_t kind)
{
	(void)of, (void)context, (void)size, (void)alignment, (void)kind;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void no_free(struct ibv_pd *of, void *context, void *memory, uint64_t kind)
{
	(void)of, (void)context, (void)memory, (void)kind;
}

/* A region and a queue pair by way of a parent domain are of its domain. */
static void parents(void)
{
	static char memory[64];
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(device, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
		IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, .alloc = no_alloc, .free = no_free };
	struct ibv_pd *parent = ibv_alloc_parent_domain(device, &attr);
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent };
	struct ibv_cq_ex *cq;
	struct ibv_mr *mr;

	CHECK(td && parent && ibv_dealloc_td(td) == EBUSY && (mr = ibv_reg_mr(parent, memory, sizeof memory, ACCESS)));
	CHECK(write_to((uintptr_t)memory, mr->rkey) == IBV_WC_SUCCESS && (cq = ibv_create_cq_ex(device, &init)));
	CHECK(ibv_dealloc_pd(parent) == EBUSY && !ibv_dereg_mr(mr) && ibv_dealloc_pd(parent) == EBUSY);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	attr.pd = parent;
	CHECK(!ibv_alloc_parent_domain(device, &attr) && errno == EINVAL);
	CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	attr.comp_mask = 64;
	CHECK(!ibv_alloc_parent_domain(device, &attr) && errno == EOPNOTSUPP);
	init.parent_domain = pd;
	CHECK(!ibv_create_cq_ex(device, &init) && errno == EINVAL);
}

int main(void)
{
	open_device();
	make(&a, 0);
	make(&b, 0);
	memcpy(a.memory, "content!", 8);
	connects_to(&a, name_of(&b));
	connects_to(&b, name_of(&a));
	addresses();
	on_demand();
	changes();
	parents();
	destroy(&a);
	destroy(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(device));
	puts("all regions changed");
	return 0;
}
