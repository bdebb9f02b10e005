/* For tests in which Linux and its programs are the peers: services in the event form, on the runtime of the test.
 *
 *   echo    sends back what comes
 *   sink    takes all, and at its end says "BYTES CRC32\n" (decimal, hexadecimal)
 *   source  takes a line with a decimal number, and sends so many bytes of the pattern
 *   http    answers the end of each request with 1 KiB; connections stay open
 *
 * A port offers one (services_listen), or connections that we open are one (services_open); a source has its number
 * from the start then. Threads: callbacks on any kthread; the calls from outside come from one thread. */
#include <corelane/libos/libos.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16384 /* connections of one services_open */
#define BLOCK 4096
#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n"
#define ANSWER (sizeof HEAD - 1 + 1024)

enum kind { ECHO, SINK, SOURCE, HTTP, KINDS };

struct result {
    int error;
    bool over;
    uint64_t bytes;
    uint32_t crc;
};

/* A connection. */
struct service {
    enum kind kind;
    struct result *result; /* of one that we opened; else NULL */
    uint64_t wants, done;  /* source: bytes; sink: taken; http: bytes of answers */
    uint32_t crc;
    unsigned matched; /* http: of the end of a request */
    bool opened, asked, eof, report_made;
    char report[40];
    unsigned report_len, reported;
};

static struct service templates[KINDS] = {{.kind = ECHO}, {.kind = SINK}, {.kind = SOURCE}, {.kind = HTTP}};
static struct result results[MOST];
static uint32_t crc_table[8][256];
static char answer[ANSWER + 1];
static uint64_t alive, over, errors; /* counted by anybody */
static int last_error;
static struct {
    struct cl_runtime *rt;
    uint32_t ipv4, count;
    uint16_t port;
    enum kind kind;
    uint64_t n;
    int rc;
} order;

static __attribute__((constructor)) void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (unsigned t = 1; t < 8; t++)
            crc_table[t][i] = crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
    memcpy(answer, HEAD, sizeof HEAD - 1);
    for (unsigned i = 0; i < 1024; i++)
        answer[sizeof HEAD - 1 + i] = (char)('a' + i % 26);
}

/* CRC-32 as zlib has it, eight bytes at a time: byte k of them has 7 - k bytes behind it. */
static uint32_t crc32_of(uint32_t crc, const uint8_t *data, int64_t len)
{
    crc = ~crc;
    for (; len >= 8; data += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (unsigned k = 0; k < 8; k++)
            crc ^= crc_table[7 - k][word >> 8 * k & 255];
    }
    for (; len; data++, len--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data) & 255];
    return ~crc;
}

static uint8_t pattern(uint64_t at)
{
    return (uint8_t)((uint32_t)(at * 2654435761u) >> 24);
}

/* What a service has to send. */

static void send_pattern(struct cl_tcp_conn *c, struct service *s)
{
    uint8_t data[BLOCK];
    while (s->done < s->wants) {
        uint64_t n = s->wants - s->done < BLOCK ? s->wants - s->done : BLOCK;
        for (uint64_t i = 0; i < n; i++)
            data[i] = pattern(s->done + i);
        int64_t took = cl_tcp_write(c, data, (int64_t)n);
        if (took > 0)
            s->done += (uint64_t)took;
        if (took < (int64_t)n)
            return;
    }
    if (s->asked && s->eof)
        cl_tcp_close(c);
    else if (s->asked)
        cl_tcp_shutdown(c);
}

static void send_report(struct cl_tcp_conn *c, struct service *s)
{
    if (!s->report_made)
        s->report_len =
            (unsigned)snprintf(s->report, sizeof s->report, "%llu %08x\n", (unsigned long long)s->done, s->crc);
    s->report_made = true;
    int64_t took = cl_tcp_write(c, s->report + s->reported, s->report_len - s->reported);
    if (took > 0)
        s->reported += (unsigned)took;
    if (s->reported == s->report_len)
        cl_tcp_close(c);
}

static void send_answers(struct cl_tcp_conn *c, struct service *s)
{
    while (s->done < s->wants) {
        unsigned at = (unsigned)(s->done % ANSWER);
        int64_t took = cl_tcp_write(c, answer + at, (int64_t)(ANSWER - at));
        if (took > 0)
            s->done += (uint64_t)took;
        if (took < (int64_t)(ANSWER - at))
            return;
    }
    if (s->eof)
        cl_tcp_close(c);
}

static void send_more(struct cl_tcp_conn *c, struct service *s)
{
    if (s->kind == SOURCE)
        send_pattern(c, s);
    else if (s->kind == SINK && s->eof)
        send_report(c, s);
    else if (s->kind == HTTP)
        send_answers(c, s);
}

/* What comes. */

static void take_line(struct service *s, const uint8_t *data, int64_t len)
{
    for (int64_t i = 0; i < len && !s->asked; i++) {
        if (data[i] == '\n')
            s->asked = true;
        else if (data[i] >= '0' && data[i] <= '9')
            s->wants = s->wants * 10 + (data[i] - '0');
    }
}

static void take_requests(struct service *s, const uint8_t *data, int64_t len)
{
    for (int64_t i = 0; i < len; i++) {
        s->matched = data[i] == "\r\n\r\n"[s->matched] ? s->matched + 1 : data[i] == '\r';
        if (s->matched == 4) {
            s->matched = 0;
            s->wants += ANSWER;
        }
    }
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct service *s = arg;
    bool asked = s->asked;
    switch (s->kind) {
    case ECHO: {
        int64_t took = cl_tcp_write(c, data, len);
        return took < 0 ? 0 : took;
    }
    case SINK:
        s->crc = crc32_of(s->crc, data, len);
        s->done += (uint64_t)len;
        return len;
    case SOURCE:
        take_line(s, data, len);
        if (s->asked && !asked)
            send_pattern(c, s);
        return len;
    default:
        take_requests(s, data, len);
        send_answers(c, s);
        return len;
    }
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    struct service *s = arg;
    if (s->kind == ECHO)
        cl_tcp_resume(c);
    else
        send_more(c, s);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct service *s = arg;
    s->eof = true;
    if (s->kind == ECHO || (s->kind == SOURCE && !s->asked))
        cl_tcp_close(c);
    else
        send_more(c, s);
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct service *s = arg;
    cl_tcp_no_delay(c, true);
    s->opened = true;
    __atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    send_more(c, s);
}

static void finish(struct service *s, int error)
{
    s->result->error = error;
    s->result->bytes = s->done;
    s->result->crc = s->crc;
    __atomic_store_n(&s->result->over, true, __ATOMIC_RELEASE); /* after the rest */
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct service *s = arg;
    (void)c;
    if (s->result)
        finish(s, error);
    if (s->opened)
        __atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
    if (error && error != ESHUTDOWN) {
        __atomic_store_n(&last_error, error, __ATOMIC_RELAXED);
        __atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&over, 1, __ATOMIC_RELEASE); /* after the result */
    free(s);
}

static const struct cl_tcp_events service_events = {
    .opened = on_opened, .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended};

/* One that came: it has been its port's until now. */
static void on_accepted(struct cl_tcp_conn *c, void *arg)
{
    struct service *s = malloc(sizeof *s);
    if (!s)
        abort();
    *s = *(struct service *)arg;
    cl_tcp_set_user(c, &service_events, s);
    on_opened(c, s);
}

static const struct cl_tcp_events listener_events = {.opened = on_accepted};

/* For the test. */

CL_API int services_listen(struct cl_runtime *rt, uint16_t port, int kind, uint32_t backlog)
{
    return cl_runtime_listen_tcp(rt, port, backlog, &listener_events, &templates[kind]);
}

static void open_all(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < order.count && !order.rc; i++) {
        struct service *s = calloc(1, sizeof *s);
        if (!s)
            abort();
        *s = (struct service){.kind = order.kind, .wants = order.n, .asked = true, .result = &results[i]};
        order.rc = cl_runtime_connect_tcp(order.rt, order.ipv4, order.port, &service_events, s);
        if (order.rc)
            free(s);
    }
}

/* Open `count` connections of a kind; n: bytes of each source. Those of the call before have to be over. */
CL_API int services_open(struct cl_runtime *rt, uint32_t ipv4, uint16_t port, int kind, uint32_t count, uint64_t n)
{
    if (count > MOST)
        return -EINVAL;
    order.rt = rt;
    order.ipv4 = ipv4;
    order.port = port;
    order.kind = (enum kind)kind;
    order.count = count;
    order.n = n;
    order.rc = 0;
    memset(results, 0, sizeof results);
    return cl_runtime_spawn(rt, open_all, NULL);
}

/* Whether the i-th of them is over; then how: its errno, bytes sent or taken, CRC-32 of what was taken. */
CL_API int services_result(uint32_t i, int *error, uint64_t *bytes, uint32_t *crc)
{
    const struct result *r = &results[i];
    if (!__atomic_load_n(&r->over, __ATOMIC_ACQUIRE) && !order.rc)
        return 0;
    *error = order.rc ? -order.rc : r->error;
    *bytes = r->bytes;
    *crc = r->crc;
    return 1;
}

/* Connections that are open now, that are over, of either direction; those that ended with an error, and
 * the last of these. */
CL_API uint64_t services_alive(void)
{
    return __atomic_load_n(&alive, __ATOMIC_RELAXED);
}

CL_API uint64_t services_over(void)
{
    return __atomic_load_n(&over, __ATOMIC_ACQUIRE);
}

CL_API uint64_t services_errors(int *last)
{
    *last = __atomic_load_n(&last_error, __ATOMIC_RELAXED);
    return __atomic_load_n(&errors, __ATOMIC_RELAXED);
}
