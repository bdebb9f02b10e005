/* Taking connections: see accept.h. The end that has closed is known by POLLHUP, whatever it has sent. */
#include "accept.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t uid_of(int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof peer});
    return peer.uid;
}

/* Whether nobody is there any more to read an answer. Who has only ended what it sends is still there. */
static bool gone(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

static bool sent_nothing(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* The one that counts a user's next connection. */
static struct cl_io_caller *next_caller(struct cl_io_caller *callers, int *used, uint32_t uid)
{
    if (*used == 0 || callers[*used - 1].uid != uid)
        callers[(*used)++] = (struct cl_io_caller){.fd = -1, .uid = uid};
    return &callers[*used - 1];
}

int cl_io_accept(int listener, bool drop, int most, struct cl_io_caller *callers, int n, int *error)
{
    int used = 0;
    *error = 0;
    for (int taken = 0; taken < most && used < n; taken++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            *error = errno;
            break;
        }
        struct cl_io_caller *caller = next_caller(callers, &used, uid_of(fd));
        if (!gone(fd) || !(drop || sent_nothing(fd))) {
            caller->fd = fd;
            break;
        }
        close(fd);
        caller->gone++;
    }
    return used;
}
