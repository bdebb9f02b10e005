/* A C server of its own: echo on UDP port 9000, until Ctrl-C.
 *
 *   cc -O2 examples/c_echo.c -o c_echo $(corelane config --cflags --libs)
 *   ./c_echo /run/corelane.sock */
#include <corelane/libos/libos.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    if (len > room)
        return -1;
    if (cl_udp_from_server(cl_current_request()))
        return 0; /* two echo services would answer each other for ever */
    memcpy(reply, request, (size_t)len);
    return len;
}

static void on_event(void *arg, int event, const char *text)
{
    (void)arg;
    (void)event;
    fprintf(stderr, "c_echo: %s\n", text);
}

int main(int argc, char **argv)
{
    struct cl_runtime_config config = {.socket_path = argc > 1 ? argv[1] : "/run/corelane.sock",
                                       .name = "c-echo",
                                       .kthreads = 2,
                                       .on_event = on_event};
    struct cl_runtime *rt;
    struct cl_net_stats stats;
    char err[256] = "";
    sigset_t ends;
    int number;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the kthreads start, so that they inherit it */

    if (cl_runtime_new(&config, &rt, err) < 0 || cl_runtime_bind_udp(rt, 9000, echo, NULL) < 0 ||
        cl_runtime_start(rt, err) < 0) {
        fprintf(stderr, "c_echo: %s\n", err);
        return 1;
    }
    sigwait(&ends, &number);
    cl_runtime_stop(rt, 1000000000);
    cl_runtime_net_stats(rt, -1, &stats);
    printf("%" PRIu64 " requests, %" PRIu64 " replies\n", stats.handled, stats.replied);
    cl_runtime_delete(rt);
    return 0;
}
