/* What every program here ends with when something does not hold: where, and what errno(3) was. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) do { \
	if (!(what)) { \
		printf("line %d: %s does not hold (errno %d)\n", __LINE__, #what, errno); \
		exit(1); \
	} \
} while (0)
