/* A program that knows nothing of corelane: what is refused on sockets of the dataplane, with a sentence for each. It
 * prints the results of its calls (../test_programs.py).
 *
 *   given ADDRESS SEQUENCE */
#include "pairs.h"

#include <aio.h>
#include <fcntl.h>
#include <sys/ioctl.h>

/* To another process, as programs do that hand a listener to their successor. */
static void sent(void)
{
    int u[2], c, s, file = open("/dev/null", O_RDONLY);
    char control[CMSG_SPACE(2 * sizeof(int))] = {0}, byte = 0;
    struct iovec vec = {&byte, 1};
    struct mmsghdr m = {{.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control},
                        0};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m.msg_hdr);
    pair(&c, &s);
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, u));
    *h = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(2 * sizeof(int))};
    memcpy(CMSG_DATA(h), (int[2]){file, s}, 2 * sizeof(int));
    say("sendmsg", sendmsg(u[0], &m.msg_hdr, 0));
    say("sendmmsg", sendmmsg(u[0], &m, 1, 0));
    memcpy(CMSG_DATA(h), (int[2]){file, u[1]}, 2 * sizeof(int));
    say("of Linux'", sendmsg(u[0], &m.msg_hdr, 0));
    say("recvmsg", recvmsg(u[1], &m.msg_hdr, 0));
}

static void by_signals(void)
{
    int c, s, on = 1, off = 0;
    char byte;
    pair(&c, &s);
    say("FIOASYNC", ioctl(s, FIOASYNC, &on));
    say("FIOASYNC off", ioctl(s, FIOASYNC, &off));
    say("O_ASYNC", fcntl(s, F_SETFL, O_ASYNC));
    struct aiocb block = {.aio_fildes = s, .aio_buf = &byte, .aio_nbytes = 1};
    struct aiocb *const list[] = {&block};
    say("aio_read", aio_read(&block));
    say("aio_write", aio_write(&block));
    say("lio_listio", lio_listio(LIO_NOWAIT, list, 1, NULL));
}

static const struct sequence sequences[] = {{"sent", sent}, {"by_signals", by_signals}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
