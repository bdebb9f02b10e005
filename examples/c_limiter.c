/* A rate limiter in C, on TCP port 7000: docs/examples.md has its protocol.
 *
 *   cc -O2 examples/c_limiter.c -o c_limiter $(corelane config --cflags --libs)
 *   ./c_limiter [/run/corelane.sock [hits a window [ms of a window]]]
 *
 * numba_limiter.py and asyncio_limiter.py are the same service. All of it runs on one kthread, so nothing is locked:
 * with several, a cl_mutex around `answer`. */
#include <corelane/libos/libos.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64    /* bytes of a line at most, its end included */
#define NAME 32    /* of a name */
#define NAMES 1000 /* that are remembered: the one that was asked for least recently goes */

struct limiter {
    struct cl_lru *used;
    uint32_t window; /* its number */
    uint32_t hits;   /* of a name in a window, at most */
};

struct used {
    uint32_t window, hits;
};

static int64_t answer(struct limiter *limiter, const char *line, int64_t len, char *reply, size_t room)
{
    char key[NAME] = "";
    struct used used = {0};
    bool hit = len >= 4 && memcmp(line, "hit ", 4) == 0, left = len >= 5 && memcmp(line, "left ", 5) == 0;
    int64_t at = hit ? 4 : 5;
    bool good = (hit || left) && len > at && len <= at + NAME;

    for (int64_t i = at; good && i < len; i++) {
        key[i - at] = line[i];
        good = (unsigned char)line[i] > ' ';
    }
    if (!good)
        return snprintf(reply, room, "error say: hit NAME, or left NAME\n");
    if (cl_lru_get(limiter->used, key, &used) || used.window != limiter->window)
        used = (struct used){.window = limiter->window};
    if (hit) {
        if (used.hits >= limiter->hits)
            return snprintf(reply, room, "full\n");
        used.hits++;
        cl_lru_put(limiter->used, key, &used);
    }
    return snprintf(reply, room, "ok %" PRIu32 "\n", limiter->hits - used.hits);
}

static int64_t on_data(const uint8_t *data, int64_t len, uint8_t *reply, int64_t room, int64_t *answered, void *arg)
{
    const uint8_t *end = memchr(data, '\n', (size_t)(len < LINE ? len : LINE));

    if (!end && len < LINE)
        return 0; /* a part of a line: it is called again when more has come */
    if (!end) {
        *answered = snprintf((char *)reply, (size_t)room, "error a line has %d bytes at most\n", LINE);
        return -1;
    }
    int64_t line = end - data;
    *answered = answer(arg, (const char *)data, line - (line && end[-1] == '\r'), (char *)reply, (size_t)room);
    return line + 1;
}

static int64_t next_window(void *arg)
{
    ((struct limiter *)arg)->window++;
    return 0;
}

static void on_event(void *arg, int event, const char *text)
{
    (void)arg;
    (void)event;
    fprintf(stderr, "c_limiter: %s\n", text);
}

int main(int argc, char **argv)
{
    struct cl_runtime_config config = {
        .socket_path = argc > 1 ? argv[1] : "/run/corelane.sock", .name = "c-limiter", .on_event = on_event};
    struct limiter limiter = {.hits = argc > 2 ? (uint32_t)atoi(argv[2]) : 5};
    uint64_t window_ns = (argc > 3 ? strtoull(argv[3], NULL, 10) : 1000) * 1000000;
    const struct cl_every *every;
    struct cl_runtime *rt;
    char err[256] = "out of memory, or there is no such window";
    sigset_t ends;
    int number;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the kthreads start, so that they inherit it */

    if (cl_lru_new(NAMES, NAME, sizeof(struct used), 1, &limiter.used) < 0 || cl_runtime_new(&config, &rt, err) < 0 ||
        cl_runtime_serve_tcp(rt, 7000, 128, 0, on_data, &limiter) < 0 ||
        cl_runtime_every(rt, window_ns, next_window, &limiter, 0, &every) < 0 || cl_runtime_start(rt, err) < 0) {
        fprintf(stderr, "c_limiter: %s\n", err);
        return 1;
    }
    printf("serving TCP port 7000\n");
    fflush(stdout);
    sigwait(&ends, &number);
    cl_runtime_stop(rt, 1000000000);
    cl_runtime_delete(rt);
    cl_lru_delete(limiter.used);
    return 0;
}
