/* TCP_CONGESTION of a socket that has no connection yet is that of the connection that it gets, or gives. */
#include "direct.h"

#include "../../../../libos/posix/kthreads.h"
#include "../../../../libos/posix/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

#define ADDRESS "10.77.0.2"

static uint8_t kinds[CL_POSIX_FDS];

struct asked {
    struct cl_stream *stream;
    const char *name;
};

static void ask_now(void *arg)
{
    struct asked *a = arg;
    a->name = cl_stream_congestion(a->stream);
}

static const char *rule_of(int fd)
{
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    CHECK(s && s->stream);
    struct asked a = {.stream = s->stream};
    CHECK(cl_posix_run(ask_now, &a) == 0);
    cl_posix_socket_put(s);
    return a.name ? a.name : "none";
}

int main(void)
{
    char err[256];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, ADDRESS, &at.sin_addr);
    CHECK(cl_posix_open("nic=memory,address=" ADDRESS "/24,poll=block", kinds, say, say, err) == 0);
    int l = new_socket_of(SOCK_STREAM), c = new_socket_of(SOCK_STREAM), other = new_socket_of(SOCK_STREAM);
    CHECK(cl_posix_bind(l, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(cl_posix_setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0 && cl_posix_listen(l, 8) == 0);
    CHECK(cl_posix_setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
    CHECK(cl_posix_connect(c, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(cl_posix_connect(other, (struct sockaddr *)&at, sizeof at) == 0);
    int s = cl_posix_accept(l, NULL, NULL, 0);
    CHECK(s >= 0);
    printf("%s %s %s %s\n", rule_of(l), rule_of(c), rule_of(s), rule_of(other));
    cl_posix_end();
    fflush(stdout);
    _exit(0);
}
