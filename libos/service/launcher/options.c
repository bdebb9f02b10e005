/* See options.h. */
#include "options.h"

#include <corelane/libos/runtime.h>

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: corelane-run SERVICE.so [--socket PATH | --nic NIC --address A.B.C.D/N] ...\n\n"
    "Run a service that `corelane compile` made, in a process without Python.\n\n"
    "  --socket PATH        attach to the iokernel there (default /run/corelane.sock)\n"
    "  --nic NIC            embedded: tap:NAME[,host=A.B.C.D/N]; of af_xdp:NAME `corelane run` loads the XDP program "
    "first\n"
    "  --address A.B.C.D/N  embedded: the service's address;  --gateway A.B.C.D: next hop beyond\n"
    "  --name NAME          the application's name (default: the service's)\n"
    "  --kthreads N         threads that run handlers (default 1);  --cpus A,B: the CPU of each\n"
    "  --poll HOW           spin, adaptive or block: what a kthread without work does;  --spin-us US\n"
    "  --class KIND         latency or batch\n"
    "  --guaranteed N  --max-cores N  --weight N  --deadline-us US  --quantum-us US  --quantum-signal\n"
    "                       what it wishes of cores that an iokernel moves\n"
    "  --port P             the port of its only handler, or of all its HTTP handlers\n"
    "  --replace            take over from the other members of its group, which then drain and end\n"
    "  --seconds S          end after so long (default: at Ctrl-C)\n"
    "  --stop-s S           how long a handler may take to come back at the end (default 5)\n"
    "  --wait S             how long to wait for the iokernel to come up (default 5)\n"
    "  --with-parent        end when the process that started this one ends\n"
    "  --check              say whether the service can run here, and end\n"
    "  --json               print events and the final counters as JSON lines\n";

enum {
    SOCKET = 256,
    NIC,
    ADDRESS,
    GATEWAY,
    NAME,
    KTHREADS,
    CPUS,
    POLL,
    SPIN_US,
    KIND,
    GUARANTEED,
    MAX_CORES,
    WEIGHT,
    DEADLINE_US,
    QUANTUM_US,
    QUANTUM_SIGNAL,
    PORT,
    SECONDS,
    STOP_S,
    WAIT,
    WITH_PARENT,
    REPLACE,
    CHECK,
    JSON,
    XSKMAP,
    LINK,
    HELP,
};

static const struct option words[] = {
    {"socket", 1, NULL, SOCKET},
    {"nic", 1, NULL, NIC},
    {"address", 1, NULL, ADDRESS},
    {"gateway", 1, NULL, GATEWAY},
    {"name", 1, NULL, NAME},
    {"kthreads", 1, NULL, KTHREADS},
    {"cpus", 1, NULL, CPUS},
    {"poll", 1, NULL, POLL},
    {"spin-us", 1, NULL, SPIN_US},
    {"class", 1, NULL, KIND},
    {"guaranteed", 1, NULL, GUARANTEED},
    {"max-cores", 1, NULL, MAX_CORES},
    {"weight", 1, NULL, WEIGHT},
    {"deadline-us", 1, NULL, DEADLINE_US},
    {"quantum-us", 1, NULL, QUANTUM_US},
    {"quantum-signal", 0, NULL, QUANTUM_SIGNAL},
    {"port", 1, NULL, PORT},
    {"seconds", 1, NULL, SECONDS},
    {"stop-s", 1, NULL, STOP_S},
    {"wait", 1, NULL, WAIT},
    {"with-parent", 0, NULL, WITH_PARENT},
    {"replace", 0, NULL, REPLACE},
    {"check", 0, NULL, CHECK},
    {"json", 0, NULL, JSON},
    {"xskmap", 1, NULL, XSKMAP},
    {"link", 1, NULL, LINK},
    {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static bool number(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || n < least || n > most)
        return false;
    *out = (uint32_t)n;
    return true;
}

static bool descriptor(const char *text, int32_t *out)
{
    uint32_t n;
    bool good = number(text, 0, INT_MAX, &n);
    if (good)
        *out = (int32_t)n;
    return good;
}

static bool amount(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 1e9))
        return false;
    *out = value;
    return true;
}

/* "a.b.c.d/n", or without a prefix if it may be. */
static bool address(const char *text, uint32_t *out, uint32_t *prefix)
{
    char copy[32];
    struct in_addr in;
    if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
        return false;
    char *slash = strchr(copy, '/');
    if (slash && (!prefix || !number(slash + 1, 1, 32, prefix)))
        return false;
    if (slash)
        *slash = 0;
    if (inet_pton(AF_INET, copy, &in) != 1)
        return false;
    *out = ntohl(in.s_addr);
    return true;
}

static bool cpus(char *text, struct options *o)
{
    char *left = NULL;
    for (char *word = strtok_r(text, ",", &left); word; word = strtok_r(NULL, ",", &left)) {
        uint32_t cpu;
        if (o->n_cpus == CL_SCHED_MAX_KTHREADS || !number(word, 0, 65535, &cpu))
            return false;
        o->cpus[o->n_cpus++] = (int32_t)cpu;
    }
    return o->n_cpus;
}

static bool one_of(const char *text, const char *const *texts, const uint32_t *numbers, uint32_t *out)
{
    for (; *texts; texts++, numbers++) {
        if (strcmp(text, *texts))
            continue;
        *out = *numbers;
        return true;
    }
    return false;
}

static bool nic(char *text, struct options *o)
{
    char *comma = strchr(text, ',');
    if (comma && (strncmp(text, "tap:", 4) || strncmp(comma, ",host=", 6) || !strchr(comma, '/') ||
                  !address(comma + 6, &o->host, &o->host_prefix)))
        return false;
    if (comma)
        *comma = 0;
    o->nic = text;
    return (strncmp(text, "tap:", 4) == 0 && text[4]) || (strncmp(text, "af_xdp:", 7) == 0 && text[7]) ||
           strcmp(text, "memory") == 0;
}

static bool take(int word, char *text, struct options *o)
{
    static const char *const polls[] = {"spin", "adaptive", "block", NULL}, *const kinds[] = {"latency", "batch", NULL};
    static const uint32_t poll_numbers[] = {CL_SCHED_SPIN, CL_SCHED_ADAPTIVE, CL_SCHED_BLOCK};
    static const uint32_t kind_numbers[] = {CL_RUNTIME_LATENCY, CL_RUNTIME_BATCH};
    switch (word) {
    case SOCKET:
        o->socket = text;
        return *text;
    case NAME:
        o->name = text;
        return *text && strlen(text) < 32;
    case NIC:
        return nic(text, o);
    case ADDRESS:
        o->prefix = 24;
        return address(text, &o->address, &o->prefix);
    case GATEWAY:
        return address(text, &o->gateway, NULL);
    case KTHREADS:
        return number(text, 1, CL_SCHED_MAX_KTHREADS, &o->kthreads);
    case CPUS:
        return cpus(text, o);
    case POLL:
        return one_of(text, polls, poll_numbers, &o->poll);
    case SPIN_US:
        return amount(text, &o->spin_us);
    case KIND:
        return one_of(text, kinds, kind_numbers, &o->kind);
    case GUARANTEED:
        return number(text, 0, CL_SCHED_MAX_KTHREADS, &o->guaranteed);
    case MAX_CORES:
        return number(text, 1, CL_SCHED_MAX_KTHREADS, &o->max_cores);
    case WEIGHT:
        return number(text, 1, 1000, &o->weight);
    case DEADLINE_US:
        return number(text, 0, UINT32_MAX, &o->deadline_us);
    case QUANTUM_US:
        return number(text, 0, UINT32_MAX, &o->quantum_us);
    case QUANTUM_SIGNAL:
        o->quantum_signal = 1;
        return true;
    case PORT:
        return number(text, 1, 65535, &o->port);
    case SECONDS:
        return amount(text, &o->seconds);
    case STOP_S:
        return amount(text, &o->stop_s);
    case WAIT:
        return amount(text, &o->wait_s);
    case WITH_PARENT:
        return o->with_parent = true;
    case REPLACE:
        return o->replace = true;
    case CHECK:
        return o->check = true;
    case JSON:
        return o->json = true;
    case XSKMAP:
        return descriptor(text, &o->xskmap_fd);
    case LINK:
        return descriptor(text, &o->link_fd);
    default:
        return false;
    }
}

static bool refuse(const char *what, const char *detail, int *status)
{
    fprintf(stderr, "corelane-run: %s%s; see corelane-run --help\n", what, detail);
    *status = 2;
    return false;
}

/* What is wrong with all of it together; NULL: nothing. */
static const char *conflict(const struct options *o)
{
    if (!o->service)
        return "name the service: corelane-run SERVICE.so";
    if (o->check)
        return NULL;
    if (o->nic && o->socket)
        return "give --socket or --nic, not both";
    if (o->nic && strncmp(o->nic, "af_xdp:", 7) == 0 && o->xskmap_fd < 0)
        return "the XDP program of the interface is to be loaded first: start it by `corelane run`";
    if (o->nic && !o->address)
        return "--nic needs the service's own address: --address A.B.C.D/N";
    if (!o->nic && (o->address || o->gateway))
        return "the iokernel gives an attached service its address: leave out --address and --gateway";
    if (o->n_cpus && o->n_cpus != o->kthreads)
        return "--cpus names one CPU for each kthread";
    return NULL;
}

bool options_parse(int argc, char **argv, struct options *out, int *status)
{
    int word, index = 0;
    *out = (struct options){.kthreads = 1,
                            .poll = CL_SCHED_ADAPTIVE,
                            .weight = 1,
                            .xskmap_fd = -1,
                            .link_fd = -1,
                            .spin_us = -1,
                            .seconds = -1,
                            .stop_s = 5,
                            .wait_s = 5};
    opterr = 0;
    while ((word = getopt_long(argc, argv, "", words, &index)) != -1) {
        if (word == HELP) {
            *status = fputs(usage, stdout) < 0;
            return false;
        }
        if (word == '?')
            return refuse("there is no such option, or its value is missing: ", argv[optind - 1], status);
        if (!take(word, optarg, out))
            return refuse("this value is none for its option: --", words[index].name, status);
    }
    if (optind + 1 < argc)
        return refuse("one service is run, and there is a word too many: ", argv[optind + 1], status);
    out->service = argv[optind];
    const char *wrong = conflict(out);
    if (wrong)
        return refuse(wrong, "", status);
    if (!out->nic && !out->socket)
        out->socket = "/run/corelane.sock";
    return true;
}
