/* What a service does, given to a runtime: handlers, periodic work, jobs and a server of HTTP, from the start to the
 * end. argv[1]: kthreads. Prints "ok". */
#include "../../net/c/pair.h"

#include "../../../../apps/http/compiled.h"
#include "../../../../apps/http/handler.h"
#include "../../../../apps/http/serve.h"

#include <corelane/libos/service.h>
#include <corelane/libos/stream.h>

#include <errno.h>
#include <poll.h>
#include <string.h>

#define WEB 8080

static uint64_t seen; /* the state of all of them */

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room;
    __atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_RELAXED);
    memcpy(reply, request, (size_t)len);
    return len;
}

static int64_t take(const uint8_t *data, int64_t len, uint8_t *reply, int64_t room, int64_t *answered, void *arg)
{
    (void)data, (void)reply, (void)room, (void)arg;
    *answered = 0;
    return len;
}

static int64_t tick(void *arg)
{
    __atomic_fetch_add((uint64_t *)arg, 1000, __ATOMIC_RELAXED);
    return 0;
}

static int64_t good(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_uthread_sleep_ns(MS), 0);
    return 42;
}

static int64_t bad(void *arg)
{
    (void)arg;
    return CL_HANDLER_RAISED;
}

static int64_t page(const uint8_t *target, int64_t target_len, const uint8_t *body, int64_t len, uint8_t *reply,
                    int64_t room, int64_t *answered, void *arg)
{
    (void)body, (void)len, (void)room;
    CHECK(arg == &seen && target_len == 5 && memcmp(target, "/page", 5) == 0);
    memcpy(reply, "here", 4);
    *answered = 4;
    return 200;
}

static const struct cl_service_http http = {"/page", "text/plain", 64, CL_HTTP_TAKES_GET, 0};
static const struct cl_service_http no_path = {"page", "text/plain", 64, CL_HTTP_TAKES_GET, 0};

#define ENTRY(fn) .name = #fn, .entry = (void *)(uintptr_t)(fn), .state = &seen
#define UDP                                                                                                            \
    {                                                                                                                  \
        .kind = CL_SERVICE_UDP, .port = 9000, ENTRY(echo)                                                              \
    }
#define TCP                                                                                                            \
    {                                                                                                                  \
        .kind = CL_SERVICE_TCP, .port = WEB, .backlog = 8, .window = 64, ENTRY(take)                                   \
    }
#define EVERY                                                                                                          \
    {                                                                                                                  \
        .kind = CL_SERVICE_EVERY, .period_ns = MS, ENTRY(tick)                                                         \
    }
#define GOOD                                                                                                           \
    {                                                                                                                  \
        .kind = CL_SERVICE_JOB, ENTRY(good)                                                                            \
    }
#define BAD                                                                                                            \
    {                                                                                                                  \
        .kind = CL_SERVICE_JOB, ENTRY(bad)                                                                             \
    }
#define HTTP                                                                                                           \
    {                                                                                                                  \
        .kind = CL_SERVICE_HTTP, .port = WEB, .http = &http, ENTRY(page)                                               \
    }

#define SERVICE(server, ...)                                                                                           \
    (struct cl_service)                                                                                                \
    {                                                                                                                  \
        .n_work = sizeof((struct cl_service_work[]){__VA_ARGS__}) / sizeof(struct cl_service_work),                    \
        .work = (struct cl_service_work[]){__VA_ARGS__}, .name = "s", .http = (server)                                 \
    }

/* A service that a runtime cannot have; what was bound of it goes with the runtime. */
static void refuses(struct cl_service s, uint16_t port, const char *finding)
{
    struct cl_service_bound *bound;
    char why[256] = "";
    pair_new(1, 1, 0);
    int rc = cl_service_bind(rt_a, &s, port, &bound, why);
    CHECK(rc < 0 && strstr(why, finding), "rc %d, %s", rc, why);
    pair_delete();
    cl_service_unbind(bound);
}

static void refusals(void)
{
    refuses(SERVICE(NULL, UDP, EVERY, UDP), 0, "echo cannot have port 9000");
    refuses(SERVICE(NULL, UDP, TCP), 9001, "it has 2 handlers, and one port was given");
    refuses(SERVICE(NULL, GOOD), 9001, "it has 0 handlers");
    refuses(SERVICE(NULL, HTTP), 0, "have no server");
    refuses(SERVICE(NULL, {.kind = 99, ENTRY(good)}), 0, "work of kind 99");
    if (!cl_http_built())
        return;
    refuses(SERVICE(cl_http_compiled_serve, TCP, HTTP), 0, "cannot serve TCP port 8080");
    refuses(SERVICE(cl_http_compiled_serve, {.kind = CL_SERVICE_HTTP, .port = WEB, .http = &no_path, ENTRY(page)}), 0,
            "page cannot serve page");
}

static void ask_udp(void)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_A, 9000, 0};
    uint8_t back[8];
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &s), 0);
    CHECK_EQ(cl_udp_sendto(s, "hello", 5, &to), 5);
    CHECK_EQ(cl_udp_recvfrom(s, back, sizeof back, NULL, 20000 * MS), 5);
    CHECK_EQ(memcmp(back, "hello", 5), 0);
    CHECK_EQ(cl_udp_close(s), 0);
}

static void ask_http(void)
{
    static const char request[] = "GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    struct cl_tcp_addr to = {IP_A, WEB, 0};
    struct cl_stream *s;
    char answer[1024];
    int64_t n, used = 0;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, 20000 * MS, &s), 0);
    CHECK_EQ(cl_stream_write(s, request, sizeof request - 1, 20000 * MS), sizeof request - 1);
    while ((n = cl_stream_read(s, answer + used, (int64_t)sizeof answer - 1 - used, 20000 * MS)) > 0)
        used += n;
    answer[used] = 0;
    CHECK(strncmp(answer, "HTTP/1.1 200", 12) == 0 && strstr(answer, "\r\n\r\nhere"), "%s", answer);
    cl_stream_close(s, 0);
}

static void client(void *arg)
{
    ask_udp();
    if (arg)
        ask_http();
    while (__atomic_load_n(&seen, __ATOMIC_RELAXED) < 2001) /* the handler once, periodic work twice */
        CHECK_EQ(cl_uthread_sleep_ns(MS), 0);
    cl_wait_group_done(&all);
}

static uint64_t counter(struct cl_service_bound *bound, const char *name)
{
    struct cl_counter found[32];
    unsigned n = cl_service_counters(bound, found, 32);
    for (unsigned i = 0; i < n; i++)
        if (strcmp(found[i].name, name) == 0)
            return found[i].value;
    return 0;
}

/* Both jobs, in the order in which they end. */
static void await_jobs(struct cl_service_bound *bound)
{
    int64_t results[2] = {0}, result;
    const char *name;
    for (unsigned told = 0; told < 2;) {
        struct pollfd fd = {cl_service_jobs_fd(bound), POLLIN, 0};
        CHECK_EQ(poll(&fd, 1, 20000), 1);
        for (; cl_service_next_job(bound, &name, &result); told++)
            results[strcmp(name, "good") == 0] = result;
    }
    CHECK(results[1] == 42 && results[0] == CL_HANDLER_RAISED);
    CHECK_EQ(cl_service_next_job(bound, &name, &result), 0);
}

static void serves(unsigned kthreads, bool web)
{
    struct cl_service s =
        web ? SERVICE(cl_http_compiled_serve, UDP, EVERY, GOOD, BAD, HTTP) : SERVICE(NULL, UDP, EVERY, GOOD, BAD);
    struct cl_service_bound *bound;
    seen = 0;
    pair_new(kthreads, 1, 0);
    CHECK(cl_service_bind(rt_a, &s, 0, &bound, err) == 0, "%s", err);
    CHECK(!cl_service_is_done(bound));
    pair_start();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, client, web ? &seen : NULL), 0);
    await_jobs(bound);
    pair_wait();
    CHECK(!cl_service_is_done(bound)); /* it serves on */
    CHECK_EQ(counter(bound, "requests"), web);
    cl_service_drain(bound);
    for (unsigned i = 0; cl_service_alive(bound) && i < 20000; i++)
        (void)poll(NULL, 0, 1);
    CHECK_EQ(cl_service_alive(bound), 0);
    pair_stop();
    pair_delete();
    cl_service_unbind(bound);
}

/* One that is jobs alone is done with them. */
static void ends_with_its_jobs(void)
{
    struct cl_service s = SERVICE(NULL, GOOD, BAD);
    struct cl_service_bound *bound;
    pair_new(1, 1, 0);
    CHECK(cl_service_bind(rt_a, &s, 0, &bound, err) == 0, "%s", err);
    pair_start();
    await_jobs(bound);
    CHECK(cl_service_is_done(bound));
    pair_stop();
    pair_delete();
    cl_service_unbind(bound);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    refusals();
    serves(kthreads, false);
    if (cl_http_built())
        serves(kthreads, true);
    ends_with_its_jobs();
    puts("ok");
    return 0;
}
