/* See corelane/libos/service.h. */
#include <corelane/libos/service.h>

#include <corelane/libos/lease.h>
#include <corelane/libos/poll.h>
#include <corelane/libos/stream.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t cl_service_layout(void)
{
    static const size_t places[] = {
        sizeof(struct cl_service),
        sizeof(struct cl_service_work),
        sizeof(struct cl_service_http),
        sizeof(struct cl_udp_types),
        sizeof(struct cl_udp_batching),
        sizeof(struct cl_udp_req),
        offsetof(struct cl_udp_req, data),
        offsetof(struct cl_udp_req, reply),
        offsetof(struct cl_udp_req, reply_len),
        offsetof(struct cl_udp_req, peer.ipv4),
        offsetof(struct cl_udp_req, peer.port),
        offsetof(struct cl_udp_req, port),
        offsetof(struct cl_udp_req, rx_tsc),
        sizeof(struct cl_udp_addr),
        offsetof(struct cl_udp_addr, port),
        sizeof(struct cl_tcp_addr),
        sizeof(struct cl_lease),
        offsetof(struct cl_lease, len),
        sizeof(struct cl_tcp_info),
        sizeof(struct cl_iovec),
        sizeof(struct cl_poll_event),
    };
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, a word at a time */
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++)
        hash = (hash ^ places[i]) * 0x100000001b3u;
    return hash;
}

#if defined(__x86_64__)
/* The psABI's levels, by the features of each that are seldom there without the others. */
static unsigned level_here(void)
{
    __builtin_cpu_init();
    bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("ssse3");
    bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
              __builtin_cpu_supports("fma");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? 4 : v3 ? 3 : v2 ? 2 : 1;
}

static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
#else
static unsigned level_here(void)
{
    return 1;
}

static const char *const levels[] = {"armv8-a"};
#endif

int cl_service_cpu(const char *level, char err[256])
{
    unsigned here = level_here();
    for (unsigned i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(level, levels[i]))
            continue;
        if (i < here)
            return 0;
        snprintf(err, 256, "it was compiled for processors of %s, and this one is of %s: compile it with --cpu %s",
                 level, levels[here - 1], levels[here - 1]);
        return -ENOTSUP;
    }
    snprintf(err, 256, "it was compiled for processors of %.60s, which this corelane does not know", level);
    return -ENOTSUP;
}

/* What is not of this corelane is read no further than its ABI number, which stays where it is. */
static int check(const struct cl_service *s, char err[256])
{
    if (s->magic != CL_SERVICE_MAGIC) {
        snprintf(err, 256, "its corelane_service is not what corelane compile makes: compile it again");
        return -ENOEXEC;
    }
    if (s->abi != CL_SERVICE_ABI) {
        snprintf(err, 256, "it is of service ABI %u, and this corelane has %u: %s", s->abi, CL_SERVICE_ABI,
                 s->abi > CL_SERVICE_ABI ? "install a newer corelane" : "compile it again");
        return -ENOEXEC;
    }
    if (s->layout != cl_service_layout()) {
        snprintf(err, 256,
                 "it was compiled for corelane %.40s, whose structs are laid out differently: compile it again",
                 s->corelane);
        return -ENOEXEC;
    }
    if (s->n_work == 0 || s->n_work > CL_SERVICE_MOST) {
        snprintf(err, 256, "it does %u things, and a service does 1 to %u", s->n_work, CL_SERVICE_MOST);
        return -ENOEXEC;
    }
    return cl_service_cpu(s->cpu, err);
}

/* What dlopen said, without the path, which the caller names. */
static void say_why(const char *path, char err[256])
{
    const char *why = dlerror(), *undefined = "undefined symbol: ";
    const char *lacks = why ? strstr(why, undefined) : NULL;
    size_t n = strlen(path);
    if (lacks) {
        lacks += strlen(undefined);
        snprintf(err, 256, "it uses %.*s, which this corelane does not have: compile it again",
                 (int)cl_min(strcspn(lacks, " ,("), (size_t)100), lacks);
        return;
    }
    if (why && strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0)
        why += n + 2;
    snprintf(err, 256, "%.240s", why ? why : "it cannot be loaded");
}

int cl_service_open(const char *path, const struct cl_service **out, char err[256])
{
    char real[PATH_MAX];
    if (!realpath(path, real)) { /* a name without '/' dlopen looks for elsewhere */
        int error = errno;
        snprintf(err, 256, "%s", strerror(error));
        return -error;
    }
    void *object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        say_why(real, err);
        return -ENOEXEC;
    }
    const struct cl_service *found = dlsym(object, "corelane_service");
    if (!found) {
        snprintf(err, 256, "it exports no corelane_service: corelane compile makes such objects");
        return -ENOEXEC;
    }
    int rc = check(found, err);
    if (rc == 0)
        *out = found;
    return rc;
}
