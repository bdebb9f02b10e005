/* An arm of `corelane bench raft`: the least that a durable server does for the clients of udp_mux_put.c. The benchmark
 * compiles this file by itself with -DCORELANE_RAW_PUT; in libcorelane it is empty.
 *
 *     raw_put ADDRESS PORT FILE
 *
 * One thread, one socket of the kernel, one file of zeros: all puts that are there are taken together, written as 4
 * KiB, or as many as they fill, past the page cache and synchronously (O_DIRECT, O_DSYNC), and answered together. It
 * keeps no store, has no replicas and checks nothing: it shows what the clients, the kernel's sockets and one write
 * leave to any server. Runs until it is killed. */
#ifdef CORELANE_RAW_PUT

#include "load.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK 4096
#define ROOM (1 << 17)
#define FILE_BYTES (8 << 20)
#define HEADER 8
#define MAX_BATCH 64
static const char STORED[] = "STORED\r\n";
#define ANSWER (HEADER + sizeof STORED - 1)

static char puts_in[ROOM] __attribute__((aligned(BLOCK)));
static char answers[MAX_BATCH * ANSWER];
static int fd, file;
static off_t at;

/* Datagrams that came together, behind those that are there; returns the bytes of each. *from: who sent them. */
static size_t receive(size_t have, size_t *n, int flags, struct sockaddr_in *from)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {puts_in + have, ROOM - have};
    struct msghdr message = {.msg_name = from,
                             .msg_namelen = sizeof *from,
                             .msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, flags);
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        die("receive", strerror(errno));
    *n = got > 0 ? (size_t)got : 0;
    int size = (int)*n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); got > 0 && c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
            memcpy(&size, CMSG_DATA(c), sizeof size);
    return (size_t)size;
}

static void write_all(size_t bytes)
{
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (at + (off_t)bytes > FILE_BYTES)
        at = 0;
    if (pwrite(file, puts_in, bytes, at) != (ssize_t)bytes)
        die("write", strerror(errno));
    at += (off_t)bytes;
}

static void answer(const struct sockaddr_in *to, size_t n)
{
    if (n && sendto(fd, answers, n * ANSWER, 0, (const struct sockaddr *)to, sizeof *to) < 0 && errno != ECONNREFUSED)
        die("answer", strerror(errno));
}

/* All that is there: one write, then all answers. */
static void serve(void)
{
    static char requests[ROOM / HEADER][HEADER];
    struct sockaddr_in from;
    size_t have = 0, n_requests = 0, n;
    for (int flags = 0; have < ROOM / 2; flags = MSG_DONTWAIT) {
        size_t size = receive(have, &n, flags, &from);
        if (!n)
            break;
        for (size_t i = 0; i + HEADER < n; i += size)
            memcpy(requests[n_requests++], puts_in + have + i, HEADER);
        have += n;
    }
    if (have)
        write_all(have);
    for (size_t done = 0, now; done < n_requests; done += now) {
        for (now = 0; now < MAX_BATCH && done + now < n_requests; now++) {
            memcpy(answers + now * ANSWER, requests[done + now], HEADER);
            memcpy(answers + now * ANSWER + HEADER, STORED, sizeof STORED - 1);
        }
        answer(&from, now);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage", "ADDRESS PORT FILE");
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    static char zeros[FILE_BYTES] __attribute__((aligned(BLOCK)));
    int one = 1, size = (int)ANSWER;
    file = open(argv[3], O_RDWR | O_CREAT | O_DIRECT | O_DSYNC | O_CLOEXEC, 0600);
    if (file < 0 || pwrite(file, zeros, sizeof zeros, 0) != (ssize_t)sizeof zeros)
        die("make the file", strerror(errno));
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (!inet_aton(argv[1], &here.sin_addr) || fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) < 0 ||
        setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one) < 0)
        die("open a socket", strerror(errno));
    puts("ready");
    fflush(stdout);
    for (;;)
        serve();
}

#else
typedef int cl_raw_put_is_compiled_by_itself;
#endif
