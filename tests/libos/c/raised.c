/* Exceptions of compiled code at many places, on several kthreads at a time: each is counted in one event, and a place
 * is told at most once a second. argv[1]: kthreads. Prints "ok". */
#include "../net/c/pair.h"

#include "../../../libos/raised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLACES 70 /* more than are told of one by one */
#define TOLD 64
#define UTHREADS 8
#define TIMES 40

static char words[PLACES][64];
static uint64_t counts[PLACES], others, calls, unsaid;

/* On the runtime's thread, or where it is deleted: one at a time. */
static void on_event(void *arg, int event, const char *text)
{
    unsigned place, line;
    unsigned long long more = 0;
    const char *rest = strstr(text, "; ");
    if (event != CL_EVENT_RAISED)
        return;
    CHECK(arg == counts && strncmp(text, "handler ", 8) == 0, "%s", text);
    if (rest)
        CHECK(sscanf(rest, "; %llu more since the last report", &more) == 1, "%s", text);
    calls++;
    if (sscanf(text, "handler total raised Error: %u (File \"shop.py\", line %u, in f)", &place, &line) == 2) {
        CHECK_EQ(line, place + 1);
        counts[place] += more + 1;
    } else if (strstr(text, "raised an exception (File \"shop.py\", line 1, in total)")) {
        unsaid += more + 1;
    } else {
        CHECK(strstr(text, "at too many places"), "%s", text);
        others += more + 1;
    }
}

static void raises(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < TIMES; i++) {
        for (unsigned p = 0; p < PLACES; p++)
            cl_raised("handler total", "File \"shop.py\", line 1, in total", words[p]);
        CHECK_EQ(cl_uthread_yield(), 0);
    }
    cl_wait_group_done(&all);
}

/* Of these nobody knows more than the name. */
static void raises_unsaid(void *arg)
{
    static const char name[] = "handler other", pickle[] = "\x80\x05";
    (void)arg;
    cl_raised(name, "File \"shop.py\", line 1, in total", NULL);
    cl_raised(name, "File \"shop.py\", line 1, in total", pickle);
    cl_wait_group_done(&all);
}

static void run(unsigned kthreads, cl_uthread_fn fn, unsigned uthreads)
{
    struct cl_memory_config link = {.queues = {kthreads, 1}, .ipv4 = {IP_A, IP_B}, .ipv4_prefix = 16};
    struct cl_runtime_config config = {.kthreads = kthreads, .on_event = on_event, .event_arg = counts};
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    config.nic = ends[0];
    CHECK(cl_runtime_new(&config, &rt_a, err) == 0, "%s", err);
    CHECK(cl_runtime_start(rt_a, err) == 0, "%s", err);
    cl_wait_group_init(&all);
    cl_wait_group_add(&all, (int)uthreads);
    for (unsigned i = 0; i < uthreads; i++)
        CHECK_EQ(cl_runtime_spawn(rt_a, fn, NULL), 0);
    pair_wait();
    CHECK(cl_runtime_stop(rt_a, 10000 * MS) == 0);
    cl_runtime_delete(rt_a);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 1, told = 0;
    for (unsigned p = 0; p < PLACES; p++) {
        int n = snprintf(words[p], sizeof words[p], "Error: %u", p) + 1;
        snprintf(words[p] + n, sizeof words[p] - (size_t)n, "File \"shop.py\", line %u, in f", p + 1);
    }
    cl_raised("handler total", "", words[0]); /* on no kthread */
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    run(kthreads, raises, UTHREADS);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (unsigned p = 0; p < PLACES; p++)
        if (counts[p]) {
            CHECK_EQ(counts[p], (uint64_t)UTHREADS * TIMES);
            told++;
        }
    CHECK_EQ(told, TOLD);
    CHECK_EQ(others, (uint64_t)(PLACES - TOLD) * UTHREADS * TIMES);
    /* Of a place one report when it begins, one a second, and one at the end. */
    CHECK(calls <= (TOLD + 1) * (uint64_t)(end.tv_sec - begin.tv_sec + 3), "%llu calls", (unsigned long long)calls);
    run(1, raises_unsaid, 1);
    CHECK_EQ(unsaid, 2);
    puts("ok");
    return 0;
}
