/* Feeds arbitrary bytes to a connection, in pieces of every size, with little room for answers: whatever the pieces are
 * the answers are the same, and memory comes back.
 *
 * Under libFuzzer, or by itself: fuzz_http ROUNDS SEED mutates requests that make sense. */
#include "apps/http/handler.h"
#include "apps/http/host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 700
#define ANSWERS (1 << 20)

static struct cl_http_service *service;
static struct cl_http_host *host;
static uint64_t runs;

/* Answers with the body in reverse. */
static int64_t reverse(const uint8_t *target, int64_t target_len, const uint8_t *body, int64_t len, uint8_t *reply,
                       int64_t room, int64_t *answered, void *arg)
{
    (void)target, (void)target_len, (void)arg;
    if (len > room)
        return 500;
    for (int64_t i = 0; i < len; i++)
        reply[i] = body[len - 1 - i];
    *answered = len;
    return 200;
}

static void set_up(void)
{
    struct cl_http_options options;
    char err[256];
    cl_http_options_init(&options);
    options.body_most = 4096;
    if (cl_http_service_new(&options, NULL, 1, &service, err) ||
        cl_http_add_handler(service, "/r*", CL_HTTP_TAKES_GET | CL_HTTP_TAKES_POST, "text/plain", 4096, reverse,
                            NULL) ||
        !(host = cl_http_host_new(service, ROOM)))
        abort();
    cl_http_host_pass(host, 1, 0);
}

static size_t drain(uint8_t *to, size_t have)
{
    for (int64_t n; (n = cl_http_host_read(host, to + have, (int64_t)(ANSWERS - have))) > 0;)
        have += (size_t)n;
    return have;
}

/* Take out what is said while a body is waited for: that depends on the pieces. Returns what is left. */
static size_t without_interim(uint8_t *answers, size_t len)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    for (uint8_t *at; (at = memmem(answers, len, interim, sizeof interim - 1));) {
        len -= sizeof interim - 1;
        memmove(at, at + sizeof interim - 1, (size_t)(answers + len - at));
    }
    return len;
}

/* The answers to a stream that comes in pieces of `step` bytes, each in a block of exactly its size, so that the
 * sanitizer sees each read past its end. Returns their length. */
static size_t ask(const uint8_t *data, size_t size, size_t step, uint8_t *answers, int *state)
{
    size_t have = 0;
    if (cl_http_host_open(host, false))
        abort();
    for (size_t done = 0; done < size;) {
        size_t len = cl_min(step, size - done);
        uint8_t *piece = malloc(len);
        memcpy(piece, data + done, len);
        int64_t took = cl_http_host_send(host, piece, (int64_t)len);
        free(piece);
        size_t before = have;
        have = drain(answers, have);
        if (took < 0 || took > (int64_t)len || (took == 0 && have == before))
            abort();
        done += (size_t)took;
    }
    *state = cl_http_host_state(host);
    return without_interim(answers, have);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t first[ANSWERS], next[ANSWERS];
    static const size_t steps[] = {1, 2, 7, 100};
    int state, other;
    if (!service)
        set_up();
    size_t len = ask(data, size, size ? size : 1, first, &state);
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t again = ask(data, size, steps[i], next, &other);
        /* Of two mistakes the one that is seen first is told, and that depends on the pieces. */
        if ((again > 0) != (len > 0) || (state == CL_HTTP_HOST_OPEN) != (other == CL_HTTP_HOST_OPEN)) {
            fprintf(stderr, "%zu bytes at a time: %zu bytes of answers and state %d, not %zu and %d\n", steps[i], again,
                    other, len, state);
            abort();
        }
        if (state == CL_HTTP_HOST_OPEN && (again != len || memcmp(first, next, len) != 0)) {
            fprintf(stderr, "%zu bytes at a time: other answers\n", steps[i]);
            abort();
        }
    }
    runs++;
    return 0;
}

#ifndef FUZZER
static const char *const examples[] = {
    "GET /r HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /r HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello worldGET /r HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /r HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: "
    "u\r\n\r\n",
    "GET /r HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "POST /r HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
};

int main(int argc, char **argv)
{
    static uint8_t data[2048];
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    for (unsigned i = 0; i < rounds; i++) {
        size_t size = 0;
        for (unsigned n = 1 + (unsigned)rand() % 3; n; n--) {
            const char *text = examples[(unsigned)rand() % (sizeof examples / sizeof *examples)];
            memcpy(data + size, text, strlen(text));
            size += strlen(text);
        }
        for (unsigned n = (unsigned)rand() % 4; n; n--)
            data[(unsigned)rand() % size] = (uint8_t)(rand() % 8 ? "\r\n :;0a\t"[rand() % 8] : rand());
        (void)LLVMFuzzerTestOneInput(data, size);
    }
    if (cl_http_used_bytes(service) > 65536)
        abort();
    cl_http_host_delete(host);
    if (cl_http_used_bytes(service) || cl_http_alive(service))
        abort();
    cl_http_service_delete(service);
    printf("%llu streams\n", (unsigned long long)runs);
    return 0;
}
#endif
