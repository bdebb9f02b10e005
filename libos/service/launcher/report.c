/* See report.h. The lines are those of `corelane run` (cli/run.py). */
#include "report.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define COUNTERS 512
#define LINE 16384

/* A line that is put together and written at once: other threads write, too. */
struct line {
    char text[LINE];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, args);
    va_end(args);
    if (n > 0)
        l->used = cl_min(l->used + (size_t)n, sizeof l->text - 1);
}

/* A JSON string (RFC 8259, 7). What is not ASCII goes as it is. */
static void add_string(struct line *l, const char *text)
{
    add(l, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            add(l, "\\%c", c);
        else if (c < 0x20)
            add(l, "\\u%04x", c);
        else
            add(l, "%c", c);
    }
    add(l, "\"");
}

static void write_line(struct line *l, int fd)
{
    const char *at = l->text;
    add(l, "\n");
    for (size_t left = l->used; left;) {
        ssize_t n = write(fd, at, left);
        if (n <= 0)
            return; /* whoever read us has gone */
        at += n;
        left -= (size_t)n;
    }
}

static void begin(struct line *l, const char *event, const char *text)
{
    l->used = 0;
    add(l, "{\"event\": ");
    add_string(l, event);
    add(l, ", \"text\": ");
    add_string(l, text);
}

void report_event(const struct options *o, const char *event, const char *text)
{
    struct line l = {.used = 0};
    if (o->json) {
        begin(&l, event, text);
        add(&l, "}");
        write_line(&l, STDOUT_FILENO);
        return;
    }
    add(&l, "corelane run: %s", text);
    write_line(&l, STDERR_FILENO);
}

int report_error(const struct options *o, const char *what, const char *why)
{
    struct line l = {.used = 0};
    if (o->json) {
        add(&l, "{\"error\": {\"what\": ");
        add_string(&l, what);
        add(&l, ", \"why\": ");
        add_string(&l, why);
        add(&l, ", \"hint\": \"\"}}");
        write_line(&l, STDOUT_FILENO);
        l.used = 0;
    }
    add(&l, "corelane run: %s: %s", what, why);
    write_line(&l, STDERR_FILENO);
    return 1;
}

/* "9000, 9001" of the ports of one kind. */
static unsigned add_ports(struct line *l, const struct cl_service *s, uint32_t kind, uint32_t instead)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < s->n_work && !(n && kind == CL_SERVICE_HTTP); i++) /* one port for all HTTP handlers */
        if (s->work[i].kind == kind)
            add(l, "%s%u", n++ ? ", " : "", instead ? instead : s->work[i].port);
    return n;
}

static void add_what_it_does(struct line *l, const struct cl_service *s, uint32_t instead)
{
    static const struct {
        uint32_t kind;
        const char *name;
    } kinds[] = {{CL_SERVICE_UDP, "UDP"}, {CL_SERVICE_TCP, "TCP"}, {CL_SERVICE_HTTP, "HTTP"}};
    bool serves = false;
    for (unsigned k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct line ports = {.used = 0};
        if (!add_ports(&ports, s, kinds[k].kind, instead))
            continue;
        add(l, "%s %s port %s", serves ? " and" : "serves", kinds[k].name, ports.text);
        serves = true;
    }
    if (serves)
        return;
    unsigned jobs = 0;
    for (uint32_t i = 0; i < s->n_work; i++)
        jobs += s->work[i].kind == CL_SERVICE_JOB;
    if (jobs == s->n_work)
        add(l, "runs %u job%s", jobs, jobs == 1 ? "" : "s");
    else
        add(l, "works");
}

void report_serving(const struct options *o, const char *name, const struct cl_service *s, struct cl_runtime *rt)
{
    struct line text = {.used = 0}, l = {.used = 0};
    struct cl_runtime_info info;
    char address[INET_ADDRSTRLEN];
    cl_runtime_info(rt, &info);
    inet_ntop(AF_INET, &(uint32_t){htonl(info.ipv4)}, address, sizeof address);
    add(&text, "%s ", name);
    add_what_it_does(&text, s, o->port);
    add(&text, " at %s (%s %s, %u kthread%s, without Python)", address, info.attached ? "attached to" : "embedded on",
        info.attached ? o->socket : o->nic, info.kthreads, info.kthreads == 1 ? "" : "s");
    char state[512];
    snprintf(state, sizeof state, "READY=1\nSTATUS=%.480s", text.text);
    report_state(state);
    if (!o->json) {
        report_event(o, "serving", text.text);
        return;
    }
    begin(&l, "serving", text.text);
    add(&l, ", \"app\": ");
    add_string(&l, name);
    add(&l, ", \"target\": ");
    add_string(&l, o->service);
    add(&l, ", \"pid\": %d, \"cpus\": [", (int)getpid());
    for (uint32_t i = 0; i < o->n_cpus; i++)
        add(&l, "%s%d", i ? ", " : "", o->cpus[i]);
    add(&l, "], \"ports\": [");
    add_ports(&l, s, CL_SERVICE_UDP, o->port);
    add(&l, "], \"tcp_ports\": [");
    struct line http = {.used = 0};
    unsigned tcp = add_ports(&l, s, CL_SERVICE_TCP, o->port);
    if (add_ports(&http, s, CL_SERVICE_HTTP, o->port))
        add(&l, "%s%s", tcp ? ", " : "", http.text);
    add(&l, "], \"address\": \"%s\", \"mac\": \"%02x:%02x:%02x:%02x:%02x:%02x\"", address, info.mac[0], info.mac[1],
        info.mac[2], info.mac[3], info.mac[4], info.mac[5]);
    add(&l, ", \"kthreads\": %u, \"attached\": %s, \"%s\": ", info.kthreads, info.attached ? "true" : "false",
        info.attached ? "socket" : "nic");
    add_string(&l, info.attached ? o->socket : o->nic);
    add(&l, "}");
    write_line(&l, STDOUT_FILENO);
}

static const char dropped[] = "dropped_", sched[] = "sched_";

/* Where a counter stands in the JSON: 0 net, 1 dropped, 2 sched. */
static unsigned place_of(const char *name)
{
    if (strncmp(name, dropped, strlen(dropped)) == 0)
        return 1;
    return strncmp(name, sched, strlen(sched)) == 0 ? 2 : 0;
}

static void add_counters(struct line *l, const struct cl_counter *all, unsigned n, unsigned place)
{
    static const size_t prefixes[] = {0, sizeof dropped - 1, sizeof sched - 1};
    const char *comma = "";
    for (unsigned i = 0; i < n; i++) {
        if (place_of(all[i].name) != place)
            continue;
        add(l, "%s\"%s\": %" PRIu64, comma, all[i].name + prefixes[place], all[i].value);
        comma = ", ";
    }
}

static const struct cl_counter *counter_of(const char *name, const struct cl_counter *all, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

void report_replaced(const struct options *o, const char *text, int members, int left)
{
    struct line l = {.used = 0};
    if (!o->json) {
        report_event(o, "replaced", text);
        return;
    }
    begin(&l, "replaced", text);
    add(&l, ", \"members\": %d, \"left\": %d}", members, left);
    write_line(&l, STDOUT_FILENO);
}

void report_job(const struct options *o, const char *name, int64_t result)
{
    struct line text = {.used = 0}, l = {.used = 0};
    if (result == CL_HANDLER_RAISED)
        add(&text, "job %s failed: it raised an exception", name);
    else
        add(&text, "job %s %s %" PRId64, name, result < 0 ? "failed with" : "ended with", result);
    if (!o->json) {
        report_event(o, "job", text.text);
        return;
    }
    begin(&l, "job", text.text);
    add(&l, ", \"name\": ");
    add_string(&l, name);
    if (result == CL_HANDLER_RAISED)
        add(&l, ", \"result\": null}");
    else
        add(&l, ", \"result\": %" PRId64 "}", result);
    write_line(&l, STDOUT_FILENO);
}

void report_stopped(const struct options *o, const char *name, const struct cl_runtime *rt,
                    struct cl_service_bound *bound, bool replaced)
{
    static struct cl_counter all[COUNTERS], more[COUNTERS];
    static struct line text, l;
    struct cl_net_stats net;
    unsigned n = cl_runtime_counters(rt, all, COUNTERS), drops = 0;
    unsigned n_more = cl_service_counters(bound, more, COUNTERS);
    cl_runtime_net_stats(rt, -1, &net);
    text.used = 0;
    const struct cl_counter *requests = counter_of("requests", more, n_more);
    if (requests)
        add(&text, "%s answered %" PRIu64 " requests of HTTP", name, requests->value);
    else
        add(&text, "%s handled %" PRIu64 " requests, replied to %" PRIu64, name, net.handled, net.replied);
    if (net.handler_errors)
        add(&text, ", failed %" PRIu64 " in the handler", net.handler_errors);
    for (unsigned i = 0; i < n; i++)
        if (place_of(all[i].name) == 1)
            add(&text, "%s%" PRIu64 " %s", drops++ ? ", " : ", dropped ", all[i].value,
                all[i].name + sizeof dropped - 1);
    if (!drops)
        add(&text, ", dropped none");
    if (replaced)
        add(&text, "; another process has taken over");
    if (!o->json) {
        report_event(o, "stopped", text.text);
        return;
    }
    static const char *const places[] = {"net", "dropped", "sched"};
    begin(&l, "stopped", text.text);
    add(&l, ", \"replaced\": %s", replaced ? "true" : "false");
    for (unsigned place = 0; place < 3; place++) {
        add(&l, ", \"%s\": {", places[place]);
        add_counters(&l, all, n, place);
        add(&l, "}");
    }
    add(&l, ", \"service\": {");
    for (unsigned i = 0; i < n_more; i++)
        add(&l, "%s\"%s\": %" PRIu64, i ? ", " : "", more[i].name, more[i].value);
    add(&l, "}}");
    write_line(&l, STDOUT_FILENO);
}

void report_state(const char *assignments)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    size_t n = name ? strlen(name) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (name[0] != '/' && name[0] != '@'))
        return;
    memcpy(to.sun_path, name, n);
    if (name[0] == '@') /* an abstract socket (unix(7)) */
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, assignments, strlen(assignments), MSG_NOSIGNAL, (struct sockaddr *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}
