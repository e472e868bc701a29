/* Device paths by calls that a shell does not make: older entry points, as in programs built with an older C library (Python wheels), and
   calls relative to a folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

int __xstat(int version, const char *path, struct stat *found);
int __lxstat(int version, const char *path, struct stat *found);
int __open_2(const char *path, int flags);

static const char device[] = "/dev/infiniband/uverbs0", kind[] = "/sys/class/infiniband/nicety0/node_type";

static void is_kind(int fd)
{
	char text[16] = "";

	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) == 6 && !strcmp(text, "1: CA\n") && !close(fd));
}

/* From a device to its bus, as programs do that search for the nearest processor. */
static void links_are_followed(void)
{
	char at[PATH_MAX], text[64] = "";
	char *own = realpath("/sys/class/infiniband/nicety0/ports/1/../..", NULL);

	CHECK(own && !strcmp(own, "/sys/devices/virtual/infiniband/nicety0"));
	free(own);
	CHECK(realpath("/sys/class/infiniband/nicety0/../..", at) == at && !strcmp(at, "/sys/devices/virtual"));
	CHECK(realpath("/etc/../etc/passwd", at) == at && !strcmp(at, "/etc/passwd"));
	CHECK(!realpath("/sys/class/infiniband/nicety7", at) && errno == ENOENT);
	CHECK(readlink("/sys/class/infiniband/nicety0", text, sizeof text - 1) > 0);
	CHECK(!strcmp(text, "../../devices/virtual/infiniband/nicety0"));
	CHECK(readlink("/sys/class/infiniband/nicety0/ports", text, sizeof text) == -1 && errno == EINVAL);
	CHECK(readlink("/proc/self/exe", text, sizeof text) > 0);
}

int main(void)
{
	struct stat found;

	links_are_followed();

	CHECK(!__xstat(1, device, &found) && S_ISCHR(found.st_mode));
	CHECK(!__lxstat(1, device, &found) && S_ISCHR(found.st_mode));
	CHECK(!fstatat(AT_FDCWD, device, &found, 0) && S_ISCHR(found.st_mode) && !faccessat(AT_FDCWD, device, R_OK, 0));
	CHECK(__xstat(1, "/dev/infiniband/uverbs7", &found) == -1 && fstatat(AT_FDCWD, "/dev/infiniband/uverbs7", &found, 0) == -1);
	CHECK(!__xstat(1, "/etc/passwd", &found) && S_ISREG(found.st_mode));
	is_kind(__open_2(kind, O_RDONLY));
	is_kind(openat(AT_FDCWD, kind, O_RDONLY));
	int etc = open("/etc", O_RDONLY | O_DIRECTORY);
	CHECK(etc >= 0 && !fstatat(etc, "passwd", &found, 0) && S_ISREG(found.st_mode) && openat(etc, "passwd", O_RDONLY) >= 0);
	printf("all found\n");
	return 0;
}
