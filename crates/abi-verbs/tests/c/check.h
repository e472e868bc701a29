/* How a program here fails when a check does not hold: it prints the place and errno(3). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) do { \
	if (!(what)) { \
		printf("line %d: %s does not hold (errno %d)\n", __LINE__, #what, errno); \
		exit(1); \
	} \
} while (0)
