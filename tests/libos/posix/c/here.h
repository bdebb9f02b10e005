/* The main of a program that is compared: PROGRAM ADDRESS SEQUENCE. */
#ifndef TESTS_LIBOS_POSIX_HERE_H
#define TESTS_LIBOS_POSIX_HERE_H

#include "said.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in here; /* the address, port 0 */

/* The program's exit status. 2: it was called otherwise, or there is no such sequence. */
static inline int run_with_address(const struct sequence *sequences, int argc, char **argv)
{
    here.sin_family = AF_INET;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1)
        return 2;
    return run_sequence(sequences, argv[2]);
}

#endif
