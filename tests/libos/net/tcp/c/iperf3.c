/* For tests: the server's side of iperf3, as far as its client needs one. One test at a time, in either direction.
 *
 * A client opens a connection for control, then one for each stream; each begins with the same cookie. Over the first,
 * states are single bytes, and parameters and results are texts in JSON behind their length. The streams are announced
 * and started in one go: the client opens them before it looks at what comes next. So no connection has to wait for
 * another one. */
#include <corelane/libos/libos.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COOKIE 37
#define STREAMS 64
#define TEXT_MOST 16384

/* States that the client knows (the manual's "iperf3 -d" names them). */
enum { TEST_START = 1, TEST_RUNNING = 2, TEST_END = 4, PARAM_EXCHANGE = 9, CREATE_STREAMS = 10, EXCHANGE_RESULTS = 13 };
enum { DISPLAY_RESULTS = 14, IPERF_DONE = 16 };

/* What a connection waits for. */
enum awaits { AWAITS_COOKIE, AWAITS_PARAMETERS, AWAITS_END, AWAITS_RESULTS, AWAITS_DONE, IS_STREAM, IS_OVER };

struct end {
    enum awaits awaits;
    bool control;
    uint32_t has; /* bytes in `text` */
    uint8_t text[TEXT_MOST];
    unsigned stream;
};

static struct {
    pthread_mutex_t lock;
    bool is_on, reverse;
    uint8_t cookie[COOKIE];
    unsigned streams, done;
    uint64_t bytes[STREAMS]; /* of each stream. Added to by its connection */
} test = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void give_up(struct cl_tcp_conn *c, struct end *e)
{
    e->awaits = IS_OVER;
    cl_tcp_abort(c);
}

static void say(struct cl_tcp_conn *c, struct end *e, const void *data, size_t len)
{
    if (e->awaits != IS_OVER && cl_tcp_write(c, data, (int64_t)len) != (int64_t)len) /* it fits into any buffer */
        give_up(c, e);
}

static void say_state(struct cl_tcp_conn *c, struct end *e, uint8_t state)
{
    say(c, e, &state, 1);
}

static void send_more(struct cl_tcp_conn *c, struct end *e)
{
    static const uint8_t zeros[16384];
    int64_t took;
    while (test.reverse && (took = cl_tcp_write(c, zeros, sizeof zeros)) > 0)
        __atomic_fetch_add(&test.bytes[e->stream], (uint64_t)took, __ATOMIC_RELAXED);
}

/* Who begins with a cookie is for control, or a stream of the test that is on. */
static void take_cookie(struct cl_tcp_conn *c, struct end *e)
{
    pthread_mutex_lock(&test.lock);
    bool control = !test.is_on;
    if (control) {
        test.is_on = true;
        test.streams = 0;
        memset(test.bytes, 0, sizeof test.bytes);
        memcpy(test.cookie, e->text, COOKIE);
        e->awaits = AWAITS_PARAMETERS;
        e->control = true;
    } else if (memcmp(test.cookie, e->text, COOKIE) == 0 && test.streams < STREAMS) {
        e->awaits = IS_STREAM;
        e->stream = test.streams++;
    }
    pthread_mutex_unlock(&test.lock);
    e->has = 0;
    if (control)
        say_state(c, e, PARAM_EXCHANGE);
    else if (e->awaits == IS_STREAM)
        send_more(c, e);
    else
        give_up(c, e);
}

static void take_parameters(struct cl_tcp_conn *c, struct end *e, const char *text)
{
    static const uint8_t states[] = {CREATE_STREAMS, TEST_START, TEST_RUNNING};
    test.reverse = strstr(text, "\"reverse\":true") != NULL; /* before any stream is there */
    e->awaits = AWAITS_END;
    say(c, e, states, sizeof states);
}

/* Our side of the results: the client numbers its streams 1, 3, 4, ... */
static void say_results(struct cl_tcp_conn *c, struct end *e)
{
    char text[TEXT_MOST];
    int n = snprintf(text, sizeof text,
                     "{\"cpu_util_total\":0,\"cpu_util_user\":0,\"cpu_util_system\":0,"
                     "\"sender_has_retransmits\":0,\"streams\":[");
    for (unsigned i = 0; i < test.streams; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"id\":%u,\"bytes\":%llu,\"retransmits\":0,\"jitter\":0,\"errors\":0,\"packets\":0}",
                      i ? "," : "", i ? i + 2 : 1,
                      (unsigned long long)__atomic_load_n(&test.bytes[i], __ATOMIC_RELAXED));
    n += snprintf(text + n, sizeof text - (size_t)n, "]}");
    uint8_t length[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    e->awaits = AWAITS_DONE;
    say(c, e, length, sizeof length);
    say(c, e, text, (size_t)n);
    say_state(c, e, DISPLAY_RESULTS);
}

/* How many bytes make what a connection waits for; 0: that is not known yet. */
static uint32_t wanted(const struct end *e)
{
    if (e->awaits == AWAITS_COOKIE)
        return COOKIE;
    if (e->awaits == AWAITS_END || e->awaits == AWAITS_DONE)
        return 1;
    if (e->has < 4)
        return 0;
    return 4 + ((uint32_t)e->text[0] << 24 | (uint32_t)e->text[1] << 16 | (uint32_t)e->text[2] << 8 | e->text[3]);
}

static void take_whole(struct cl_tcp_conn *c, struct end *e)
{
    uint8_t state = e->text[0];
    enum awaits awaited = e->awaits;
    e->text[e->has] = 0;
    if (awaited == AWAITS_COOKIE)
        take_cookie(c, e);
    else if (awaited == AWAITS_PARAMETERS)
        take_parameters(c, e, (const char *)e->text + 4);
    else if (awaited == AWAITS_RESULTS)
        say_results(c, e);
    else if (awaited == AWAITS_END && state == TEST_END) {
        e->awaits = AWAITS_RESULTS;
        say_state(c, e, EXCHANGE_RESULTS);
    } else if (awaited == AWAITS_DONE && state == IPERF_DONE) {
        __atomic_fetch_add(&test.done, 1, __ATOMIC_RELAXED);
        cl_tcp_close(c);
    } else {
        give_up(c, e);
    }
    e->has = 0;
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct end *e = arg;
    int64_t i = 0;
    while (i < len && e->awaits < IS_STREAM) {
        e->text[e->has++] = data[i++];
        if (e->has == wanted(e))
            take_whole(c, e);
        else if (e->has == TEXT_MOST - 1)
            give_up(c, e);
    }
    if (e->awaits == IS_STREAM)
        __atomic_fetch_add(&test.bytes[e->stream], (uint64_t)(len - i), __ATOMIC_RELAXED);
    return len;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    struct end *e = arg;
    if (e->awaits == IS_STREAM)
        send_more(c, e);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct end *e = arg;
    (void)c, (void)error;
    if (e->control)
        test.is_on = false;
    free(e);
}

static const struct cl_tcp_events end_events = {
    .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended};

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct end *e = calloc(1, sizeof *e);
    (void)arg;
    if (!e)
        abort();
    cl_tcp_no_delay(c, true);
    cl_tcp_set_user(c, &end_events, e);
}

static const struct cl_tcp_events listener_events = {.opened = on_opened};

CL_API int iperf3_listen(struct cl_runtime *rt, uint16_t port)
{
    return cl_runtime_listen_tcp(rt, port, 128, &listener_events, NULL);
}

/* Tests that came to their end. */
CL_API unsigned iperf3_done(void)
{
    return __atomic_load_n(&test.done, __ATOMIC_RELAXED);
}
