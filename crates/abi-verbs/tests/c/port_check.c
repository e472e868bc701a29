/* How collective libraries such as NCCL choose a device, a port and a GID: libibverbs by dlopen(3) and dlvsym(3), ports by state and link
   layer, the bus by the device's link in sysfs, and the RoCE v2 GID that is an address of the wanted family in the wanted network. Here:
   IPv4 in 127.0.0.0/8. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static struct ibv_device **(*get_list)(int *);
static void (*free_list)(struct ibv_device **);
static struct ibv_context *(*open_device)(struct ibv_device *);
static int (*close_device)(struct ibv_context *);
static int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
static int (*query_port)(struct ibv_context *, uint8_t, void *);
static int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);

static void *symbol(void *library, const char *name)
{
	void *found = dlvsym(library, name, "IBVERBS_1.1");

	CHECK(found);
	return found;
}

static void load(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	CHECK(library);
	get_list = symbol(library, "ibv_get_device_list");
	free_list = symbol(library, "ibv_free_device_list");
	open_device = symbol(library, "ibv_open_device");
	close_device = symbol(library, "ibv_close_device");
	query_device = symbol(library, "ibv_query_device");
	query_port = symbol(library, "ibv_query_port");
	query_gid = symbol(library, "ibv_query_gid");
	for (const char **name = (const char *[]){ "ibv_get_async_event", "ibv_ack_async_event", "ibv_query_qp", "ibv_alloc_pd",
		"ibv_dealloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_create_cq", "ibv_destroy_cq", "ibv_create_qp", "ibv_modify_qp",
		"ibv_destroy_qp", "ibv_fork_init", "ibv_event_type_str", NULL }; *name; name++)
		symbol(library, *name);
	CHECK(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8") && dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
	CHECK(dlvsym(library, "ibv_query_ece", "IBVERBS_1.10") && dlvsym(library, "ibv_set_ece", "IBVERBS_1.10"));
}

/* The version of RoCE in a file; 0 for another type. */
static int roce_version(const char *device, int port, int index)
{
	char path[PATH_MAX], text[16] = "";

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device, port, index);
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !close(fd));
	if (!strncmp(text, "RoCE v2", 7))
		return 2;
	return !strncmp(text, "IB/RoCE v1", 10) || !strncmp(text, "RoCE v1", 7);
}

static int is_ipv4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid);
}

/* The first GID that is better than GID 0. */
static int gid_index(struct ibv_context *context, const char *device, int port, int count)
{
	union ibv_gid gid;

	for (int at = 1; at < count; at++) {
		CHECK(!query_gid(context, port, at, &gid));
		if (is_ipv4(&gid) && gid.raw[12] == 127 && roce_version(device, port, at) == 2)
			return at;
	}
	return 0;
}

int main(void)
{
	int devices, usable = 0;

	load();
	struct ibv_device **list = get_list(&devices);
	CHECK(list && devices == 2);
	for (int at = 0; at < devices; at++) {
		struct ibv_device_attr device = { 0 };
		const char *name = list[at]->name;
		char path[PATH_MAX];
		struct ibv_context *context = open_device(list[at]);
		CHECK(context && !query_device(context, &device) && device.phys_port_cnt);
		for (int port = 1; port <= device.phys_port_cnt; port++) {
			struct ibv_port_attr attr;
			memset(&attr, 0, sizeof attr);
			CHECK(!query_port(context, port, &attr));
			if (attr.state != IBV_PORT_ACTIVE)
				continue;
			if (attr.link_layer != IBV_LINK_LAYER_INFINIBAND && attr.link_layer != IBV_LINK_LAYER_ETHERNET)
				continue;
			CHECK(attr.active_speed && attr.active_width && attr.gid_tbl_len > 1);
			snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name);
			char *bus = realpath(path, NULL);
			CHECK(bus);
			free(bus);
			CHECK(gid_index(context, name, port, attr.gid_tbl_len) == 1);
			usable++;
		}
		CHECK(!close_device(context));
	}
	free_list(list);
	CHECK(usable == devices);
	printf("all usable\n");
	return 0;
}
