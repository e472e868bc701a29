/* Prints the IPv4 addresses at which sockets of this network namespace listen. */
#include <arpa/inet.h>

#include "check.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    FILE *table = fopen("/proc/self/net/tcp", "r");
    CHECK(table);
    char line[512], text[INET_ADDRSTRLEN];
    while (fgets(line, sizeof line, table)) {
        struct in_addr address;
        unsigned state;
        if (sscanf(line, " %*u: %x:%*x %*x:%*x %x", &address.s_addr, &state) == 2 && state == 10)
            printf("%s\n", inet_ntop(AF_INET, &address, text, sizeof text));
    }
    fclose(table);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
