/* Requests that are slow for a known reason, by virtual time, and what is written down of them. A client asks the ports
 * of a server once a millisecond; each TENTH request is marked, and then what its port stands for takes DELAY_NS:
 *
 *   9001 the handler runs            9004 the one before it in the inbox runs
 *   9002 the handler sleeps          9005 the handler gives way to another uthread, which runs
 *   9003 another handler has the mutex that it wants
 *
 * Usage: stages MODE FILE, where MODE is cl_runtime_config.trace. Writes all records of the server to FILE, where it is
 * traced, and prints who was answered when: the port and the time of each answer. */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include <corelane/libos/stepper.h>
#include <corelane/libos/sync.h>
#include "runtime/trace.h"

#include "tests/support/c/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IP_CLIENT 0x0a4d0001u
#define IP_SERVER 0x0a4d0002u
#define PORTS 5
#define REQUESTS 200
#define TENTH 10
#define DELAY_NS 20000

static uint64_t now_ns = 1000000000;
static struct cl_mutex mutex;
static struct cl_sem other_may;
static uint64_t answers;
static struct {
    uint64_t ns;
    uint16_t port;
} answered[REQUESTS * PORTS + 2 * REQUESTS / TENTH];

static int64_t answer(uint8_t *reply)
{
    reply[0] = 1;
    return 1;
}

static int64_t runs(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)room, (void)arg;
    now_ns += request[0] ? DELAY_NS : 100;
    return answer(reply);
}

static int64_t sleeps(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)room, (void)arg;
    if (request[0])
        CHECK_EQ(cl_uthread_sleep_ns(DELAY_NS), 0);
    return answer(reply);
}

/* Marked: holds it for longer than DELAY_NS; the one that comes in between waits. */
static int64_t locks(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)room, (void)arg;
    CHECK_EQ(cl_mutex_lock(&mutex), 0);
    if (request[0])
        CHECK_EQ(cl_uthread_sleep_ns(2 * DELAY_NS), 0);
    CHECK_EQ(cl_mutex_unlock(&mutex), 0);
    return answer(reply);
}

static int64_t gives_way(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)room, (void)arg;
    if (request[0]) {
        cl_sem_post(&other_may);
        CHECK_EQ(cl_uthread_yield(), 0);
    }
    return answer(reply);
}

static void other(void *arg)
{
    (void)arg;
    while (cl_sem_wait(&other_may) == 0)
        now_ns += DELAY_NS;
}

static void ask(struct cl_udp_socket *s, uint16_t port, uint8_t marked)
{
    struct cl_udp_addr to = {.ipv4 = IP_SERVER, .port = port};
    CHECK_EQ(cl_udp_sendto(s, &marked, 1, &to), 1);
}

static void client(void *arg)
{
    struct cl_udp_socket *s = arg;
    uint64_t next = now_ns;
    for (unsigned i = 0; i < REQUESTS; i++) {
        bool marked = i % TENTH == TENTH - 1;
        for (uint16_t p = 0; p < PORTS; p++) {
            cl_uthread_sleep_until_ns(next += 200000);
            if (p == 3 && marked) /* both at once, the long one first */
                ask(s, 9001, 1);
            ask(s, (uint16_t)(9001 + p), p == 3 ? 0 : marked);
            if (p == 2 && marked) { /* half-way through what the other has it for */
                cl_uthread_sleep_ns(DELAY_NS);
                ask(s, 9003, 0);
            }
        }
    }
}

static void listener(void *arg)
{
    struct cl_udp_addr from;
    uint8_t byte;
    while (cl_udp_recvfrom(arg, &byte, 1, &from, -1) == 1) {
        CHECK(answers < sizeof answered / sizeof *answered);
        answered[answers].ns = now_ns;
        answered[answers++].port = from.port;
    }
}

static struct cl_runtime *host(struct cl_nic *nic, uint32_t ipv4, uint32_t trace, struct cl_stepper *stepper)
{
    struct cl_runtime_config c = {.nic = nic, .ipv4 = ipv4, .ipv4_prefix = 24, .name = "staged", .trace = trace};
    struct cl_runtime *rt;
    char err[256] = "";
    c.trace_one_in = 1000000000;
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    return rt;
}

/* As a reader of another process finds it. */
static void find_segment(struct cl_memory *out)
{
    DIR *dir = opendir("/proc/self/fd");
    char err[256] = "";
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char link[300], path[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        if (n < 0 || (link[n] = 0, strcmp(link, "/memfd:" CL_TRACE_NAME " (deleted)")))
            continue;
        struct stat st;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && fstat(fd, &st) == 0);
        CHECK(cl_memory_map(fd, (uint64_t)st.st_size, false, out, err) == 0, "%s", err);
        CHECK(cl_trace_check(out->base, out->bytes, err) == 0, "%s", err);
        CHECK(!strcmp(((struct cl_trace_header *)out->base)->name, "staged"));
        closedir(dir);
        return;
    }
    CHECK(false, "there is no segment");
}

static void dump(const char *path)
{
    static uint8_t records[8192 * CL_TRACE_RECORD];
    struct cl_memory m;
    uint64_t next = 0, lost = 0, garbage = 0;
    find_segment(&m);
    uint32_t n = cl_trace_read(m.base, m.bytes, 0, &next, records, 8192, &lost, &garbage);
    CHECK(lost == 0 && garbage == 0);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(records, CL_TRACE_RECORD, n, f) == n && fclose(f) == 0);
    cl_memory_close(&m);
}

int main(int argc, char **argv)
{
    struct cl_clock clock;
    struct cl_nic *ends[2];
    struct cl_stepper *stepper;
    struct cl_udp_socket *sock;
    char err[256] = "";
    CHECK(argc == 3);
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock};
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    cl_mutex_init(&mutex);
    cl_sem_init(&other_may, 0);
    struct cl_runtime *a = host(ends[0], IP_CLIENT, CL_RUNTIME_TRACE_OFF, stepper);
    struct cl_runtime *b = host(ends[1], IP_SERVER, (uint32_t)atoi(argv[1]), stepper);
    CHECK_EQ(cl_udp_open(a, 0, 4096, &sock), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9001, runs, NULL), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9002, sleeps, NULL), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9003, locks, NULL), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9004, runs, NULL), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9005, gives_way, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(b, other, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(a, listener, sock), 0);
    CHECK_EQ(cl_runtime_spawn(a, client, sock), 0);
    CHECK(cl_stepper_run(stepper, now_ns + 2000000000, err) == 0, "%s", err);
    CHECK_EQ(answers, REQUESTS * PORTS + 2 * REQUESTS / TENTH);
    if (atoi(argv[1]) != CL_RUNTIME_TRACE_OFF)
        dump(argv[2]);
    for (uint64_t i = 0; i < answers; i++)
        printf("%u %llu\n", answered[i].port, (unsigned long long)answered[i].ns);
    cl_runtime_stop(a, 0);
    cl_runtime_stop(b, 0);
    cl_stepper_delete(stepper);
    cl_runtime_delete(a);
    cl_runtime_delete(b);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    return 0;
}
