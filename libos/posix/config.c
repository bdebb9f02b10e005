/* See config.h. */
#include "config.h"

#include <corelane/libos/runtime.h>

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_number(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* "a.b.c.d" or, if prefix is not NULL, "a.b.c.d/n". */
static bool parse_address(const char *text, uint32_t *address, uint32_t *prefix)
{
    char copy[32];
    struct in_addr in;
    if (strlen(text) >= sizeof copy)
        return false;
    memcpy(copy, text, strlen(text) + 1);
    char *slash = strchr(copy, '/');
    if (!slash != !prefix || (slash && !parse_number(slash + 1, 1, 32, prefix)))
        return false;
    if (slash)
        *slash = 0;
    if (inet_pton(AF_INET, copy, &in) != 1)
        return false;
    *address = ntohl(in.s_addr);
    return true;
}

/* "10.77.0.*", or "*". */
static bool parse_address_pattern(char *text, struct cl_posix_pattern *out)
{
    unsigned n = 0;
    if (strcmp(text, "*") == 0)
        return true;
    for (char *word; (word = strsep(&text, ".")); n++) {
        uint32_t octet = 0;
        bool any = strcmp(word, "*") == 0;
        if (n == 4 || (!any && !parse_number(word, 0, 255, &octet)))
            return false;
        out->address = out->address << 8 | octet;
        out->mask = out->mask << 8 | (any ? 0 : 255u);
    }
    return n == 4;
}

/* "80", "10.77.0.*", "10.77.0.*:80", "10.77.0.2:*". */
static bool parse_pattern(char *text, struct cl_posix_pattern *out)
{
    char *port = strchr(text, ':');
    uint32_t n = 0;
    *out = (struct cl_posix_pattern){0};
    if (port)
        *port++ = 0;
    else if (!strchr(text, '.') && strcmp(text, "*") != 0)
        port = text;
    if (port && strcmp(port, "*") != 0 && !parse_number(port, 1, 65535, &n))
        return false;
    out->port = (uint16_t)n;
    return port == text || parse_address_pattern(text, out);
}

static bool parse_patterns(char *text, struct cl_posix_config *c)
{
    for (char *word; (word = strsep(&text, ";")); c->n_patterns++)
        if (c->n_patterns == CL_POSIX_PATTERNS || !parse_pattern(word, &c->patterns[c->n_patterns]))
            return false;
    return true;
}

static bool parse_on(const char *text, bool *on)
{
    *on = strcmp(text, "1") == 0;
    return *on;
}

static bool keep(char *to, size_t room, const char *text)
{
    return (size_t)snprintf(to, room, "%s", text) < room;
}

static bool parse_poll(const char *text, uint32_t *poll)
{
    *poll = strcmp(text, "block") == 0 ? CL_SCHED_BLOCK : CL_SCHED_ADAPTIVE;
    return *poll == CL_SCHED_BLOCK || strcmp(text, "adaptive") == 0;
}

static bool parse_record(const char *text, uint32_t *record)
{
    *record = strcmp(text, "sampled") == 0 ? CL_RUNTIME_TRACE_SAMPLED
              : strcmp(text, "full") == 0  ? CL_RUNTIME_TRACE_FULL
                                           : CL_RUNTIME_TRACE_OFF;
    return *record != CL_RUNTIME_TRACE_OFF || strcmp(text, "off") == 0;
}

static bool parse_nic(const char *text, struct cl_posix_config *c)
{
    bool known = strncmp(text, "tap:", 4) == 0 || strncmp(text, "af_xdp:", 7) == 0 || strcmp(text, "memory") == 0;
    return known && keep(c->nic, sizeof c->nic, text);
}

static bool parse_fd(const char *text, int *fd)
{
    uint32_t n;
    if (!parse_number(text, 0, INT_MAX, &n))
        return false;
    *fd = (int)n;
    return true;
}

static bool parse_word(const char *key, char *value, struct cl_posix_config *c)
{
    if (strcmp(key, "nic") == 0)
        return parse_nic(value, c);
    if (strcmp(key, "xskmap") == 0)
        return parse_fd(value, &c->xskmap_fd);
    if (strcmp(key, "link") == 0)
        return parse_fd(value, &c->link_fd);
    if (strcmp(key, "socket") == 0)
        return keep(c->socket, sizeof c->socket, value);
    if (strcmp(key, "name") == 0)
        return keep(c->name, sizeof c->name, value);
    if (strcmp(key, "host") == 0)
        return parse_address(value, &c->host, &c->host_prefix);
    if (strcmp(key, "address") == 0)
        return parse_address(value, &c->address, &c->prefix);
    if (strcmp(key, "gateway") == 0)
        return parse_address(value, &c->gateway, NULL);
    if (strcmp(key, "kthreads") == 0)
        return parse_number(value, 1, CL_SCHED_MAX_KTHREADS, &c->kthreads);
    if (strcmp(key, "poll") == 0)
        return parse_poll(value, &c->poll);
    if (strcmp(key, "record") == 0)
        return parse_record(value, &c->record);
    if (strcmp(key, "trace") == 0)
        return parse_on(value, &c->trace);
    if (strcmp(key, "loopback") == 0)
        return parse_on(value, &c->loopback);
    if (strcmp(key, "listen") == 0)
        return parse_patterns(value, c);
    return false;
}

static int refuse(char err[256], const char *what, const char *word)
{
    snprintf(err, 256, "%s%.150s", what, word);
    return -EINVAL;
}

int cl_posix_parse(const char *words, struct cl_posix_config *out, char err[256])
{
    char text[1024];
    *out = (struct cl_posix_config){
        .xskmap_fd = -1, .link_fd = -1, .kthreads = 1, .poll = CL_SCHED_ADAPTIVE, .record = CL_RUNTIME_TRACE_OFF};
    if (!keep(text, sizeof text, words))
        return refuse(err, "the configuration is longer than 1023 bytes", "");
    char *left = NULL, shown[160];
    for (char *word = strtok_r(text, ",", &left); word; word = strtok_r(NULL, ",", &left)) {
        (void)keep(shown, sizeof shown, word);
        char *equals = strchr(word, '=');
        if (!equals)
            return refuse(err, "this is not of the form key=value: ", shown);
        *equals = 0;
        if (!parse_word(word, equals + 1, out))
            return refuse(err, "there is no such word, or not with this value: ", shown);
    }
    if (!out->nic[0] == !out->socket[0])
        return refuse(err, "give either nic=tap:NAME, nic=af_xdp:NAME or socket=PATH of an iokernel", "");
    if (strncmp(out->nic, "af_xdp:", 7) == 0 && (out->xskmap_fd < 0 || out->link_fd < 0))
        return refuse(err, "the descriptors of the XDP program are missing: corelane run --posix hands them over", "");
    if (out->nic[0] && !out->address)
        return refuse(err, "give the program's own address: address=A.B.C.D/N", "");
    return 0;
}
