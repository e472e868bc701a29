/* A network cable between two namespaces, with a rate and a delay, for kernels without the netem queueing discipline.

     cable NAMESPACE NAMESPACE DEVICE MBIT_PER_S DELAY_US

   Creates the TUN device DEVICE in each namespace, prints "ready", and carries packets between the two until standard input ends.
   Packets cross whole (with the kernel's segmentation offload), as on a veth pair; the time of each counts the headers of all
   its segments. Runs before all processes of ordinary priority, as a network does not wait for a processor: ranks that poll on
   all of them would delay its packets by milliseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 1024,
    PACKET_MAX = 65536 + sizeof(struct virtio_net_hdr),
    /* Preamble, Ethernet header, checksum and gap, of each segment; and IP and TCP headers of all but the first. */
    FRAME = 38,
    HEADERS = 52,
};

struct packet {
    uint64_t arrives;
    size_t length;
    char bytes[PACKET_MAX];
};

struct direction {
    int from, to;
    struct packet *packets;
    unsigned first, count;
    uint64_t idle_at;
};

static double ns_per_byte;
static uint64_t delay_ns;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int device_in(const char *space, const char *name)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int file;
    snprintf(path, sizeof path, "/run/netns/%s", space);
    if ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0 || setns(file, CLONE_NEWNET))
        fail(path);
    close(file);
    if ((file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        fail("/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(file, TUNSETIFF, &request) || ioctl(file, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4))
        fail("the TUN device");
    return file;
}

static size_t wire_bytes(const struct packet *packet)
{
    struct virtio_net_hdr header;
    size_t length = packet->length - sizeof header;
    memcpy(&header, packet->bytes, sizeof header);
    size_t segments = header.gso_size ? (length + header.gso_size - 1) / header.gso_size : 1;
    return length + segments * FRAME + (segments - 1) * HEADERS;
}

/* Packets wait in the device's own queue while all slots are in use. */
static void take(struct direction *d)
{
    while (d->count < SLOTS) {
        struct packet *packet = &d->packets[(d->first + d->count) % SLOTS];
        ssize_t length = read(d->from, packet->bytes, sizeof packet->bytes);
        if (length <= (ssize_t)sizeof(struct virtio_net_hdr))
            return;
        packet->length = (size_t)length;
        uint64_t at = now();
        d->idle_at = (at > d->idle_at ? at : d->idle_at) + (uint64_t)((double)wire_bytes(packet) * ns_per_byte);
        packet->arrives = d->idle_at + delay_ns;
        d->count++;
    }
}

/* Returns the time when the next packet arrives. A packet for an interface that is down is lost, as elsewhere. */
static uint64_t deliver(struct direction *d)
{
    while (d->count > 0) {
        struct packet *packet = &d->packets[d->first % SLOTS];
        if (packet->arrives > now())
            return packet->arrives;
        if (write(d->to, packet->bytes, packet->length) < 0 && errno != EIO)
            perror("cable: a packet is lost");
        d->first = (d->first + 1) % SLOTS;
        d->count--;
    }
    return UINT64_MAX;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: cable NAMESPACE NAMESPACE DEVICE MBIT_PER_S DELAY_US\n");
        return 2;
    }
    int ends[2] = {device_in(argv[1], argv[3]), device_in(argv[2], argv[3])};
    ns_per_byte = 8e3 / atof(argv[4]);
    delay_ns = (uint64_t)(atof(argv[5]) * 1e3);
    struct direction directions[2] = {{.from = ends[0], .to = ends[1]}, {.from = ends[1], .to = ends[0]}};
    for (int i = 0; i < 2; i++)
        if (!(directions[i].packets = calloc(SLOTS, sizeof(struct packet))))
            fail("memory");
    struct sched_param priority = {.sched_priority = 1};
    prctl(PR_SET_TIMERSLACK, 1);
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        perror("cable: no priority: the delay varies");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            take(&directions[i]);
            uint64_t arrives = deliver(&directions[i]);
            next = arrives < next ? arrives : next;
        }
        struct pollfd files[3] = {{.fd = 0, .events = POLLIN}};
        for (int i = 0; i < 2; i++)
            files[i + 1] = (struct pollfd){.fd = ends[i], .events = directions[i].count < SLOTS ? POLLIN : 0};
        uint64_t at = now(), left = next > at ? next - at : 0;
        struct timespec wait = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
        if (ppoll(files, 3, next == UINT64_MAX ? NULL : &wait, NULL) < 0)
            fail("ppoll");
        char byte;
        if (files[0].revents && read(0, &byte, 1) <= 0)
            return 0;
    }
}
