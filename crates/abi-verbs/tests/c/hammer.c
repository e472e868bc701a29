/* Calls every function of the table with handles that are NULL, foreign, shifted or destroyed, and other arguments NULL or the address of
   zeros. Functions that take an object reject it, unsupported functions report that, and none ends the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

/* How a function returns errors: the error number, -1 and errno, NULL and errno, or otherwise. */
enum answer { NUMBER, MINUS, POINTER, OTHER };

static const struct function {
	const char *name, *node;
	enum answer answer;
	int takes_object, is_there;
} functions[] = {
#define FUNCTION(name, node, answer, takes_object, is_there) { #name, #node, answer, takes_object, is_there },
#include "functions.h"
};

static char zeros[1 << 16] __attribute__((aligned(64)));

/* One object of each type, all destroyed. */
static void *gone[16];

static int destroy_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = (ibv_reg_mr)(pd, zeros, sizeof zeros, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { 1, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int count = 0;

	CHECK(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(mr && qp && srq && ah && events && !rdma_create_id(events, &id, NULL, RDMA_PS_TCP));
	void *all[] = { context, pd, mr, channel, cq, srq, qp, ah, events, id };
	for (; count < (int)(sizeof all / sizeof *all); count++)
		gone[count] = all[count];
	CHECK(!rdma_destroy_id(id) && !ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
	rdma_destroy_event_channel(events);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return count;
}

static void hammer(const struct function *f, void *library, void *handle, void *rest)
{
	intptr_t (*call)(void *, void *, void *, void *, void *, void *) = dlvsym(library, f->name, f->node);
	/* It checks the port space before the channel. */
	int missing = !strncmp(f->node, "IBVERBS", 7) ? EOPNOTSUPP : ENOSYS;
	int wanted = !f->is_there ? missing : !strcmp(f->name, "rdma_create_id") ? EOPNOTSUPP : EINVAL;

	CHECK(call);
	errno = 0;
	intptr_t answer = call(handle, rest, rest, rest, rest, rest);
	int left = errno, number = (int)answer;
	if (f->is_there && !f->takes_object)
		return;
	int is_refused = f->answer == NUMBER ? number == wanted : f->answer == MINUS ? number == -1 && left == wanted :
		f->answer == POINTER ? !answer && left == wanted : 1;
	if (!is_refused) {
		printf("%s@%s with %p and %p: %ld, errno %d\n", f->name, f->node, handle, rest, (long)answer, left);
		exit(1);
	}
}

int main(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	int count = destroy_all();

	CHECK(library);
	for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
		for (int with_zeros = 0; with_zeros < 2; with_zeros++) {
			void *rest = with_zeros ? zeros : NULL;
			hammer(&functions[at], library, NULL, rest);
			hammer(&functions[at], library, zeros, rest);
			for (int old = 0; functions[at].takes_object && old < count; old++) {
				hammer(&functions[at], library, gone[old], rest);
				hammer(&functions[at], library, (char *)gone[old] + 8, rest);
			}
			memset(zeros, 0, sizeof zeros);
		}
	}
	printf("all hammered\n");
	return 0;
}
