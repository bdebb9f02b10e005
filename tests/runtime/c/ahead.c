/* Pages that are fetched before they are needed (runtime/ahead.h). argv: the name of a case. Prints "ok". */
#include "runtime/ahead.h"

#include "tests/support/c/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define ITEM 2048u
#define ITEMS 16384u
#define AHEAD 512u
#define SMALL (64u * CL_AHEAD_TIMES) /* with the first 64 */
_Static_assert(SMALL < AHEAD, "few items take less");
#define THREADS 4

static uint8_t *base;
static struct cl_pool *pool;
static struct cl_ahead ahead;
static uint64_t page_bytes;

static void begin(uint32_t items, uint32_t caches, uint64_t mapped)
{
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base != MAP_FAILED);
    CHECK_EQ(madvise(base, mapped, MADV_NOHUGEPAGE), 0);
    CHECK((pool = cl_pool_new(0, items, caches)) != NULL);
    ahead = (struct cl_ahead){.pool = pool, .base = base, .item_bytes = ITEM, .ahead = AHEAD};
}

static void end(uint64_t mapped)
{
    cl_pool_delete(pool);
    CHECK_EQ(munmap(base, mapped), 0);
}

static uint64_t pages_there(void)
{
    static unsigned char there[(uint64_t)ITEM * ITEMS / 4096];
    uint64_t bytes = (uint64_t)ITEM * ITEMS, n = 0;
    CHECK_EQ(mincore(base, bytes, there), 0);
    for (uint64_t i = 0; i < bytes / page_bytes; i++)
        n += there[i] & 1;
    return n;
}

static long faults(void)
{
    struct rusage usage;
    CHECK_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

/* Write its number to each byte of an item. A sanitizer would touch pages of its own meanwhile. */
__attribute__((no_sanitize("address"), no_sanitize("thread"))) static void write_to(uint32_t index)
{
    volatile uint64_t *words = (volatile uint64_t *)(void *)(base + (uint64_t)index * ITEM);
    for (unsigned i = 0; i < ITEM / sizeof *words; i++)
        words[i] = (index & 0xff) * 0x0101010101010101ull;
}

/* Take n items and write to all of them. Returns the page faults of that. */
static long take(uint32_t n)
{
    uint32_t index[64];
    long before, all = 0;
    for (uint32_t done = 0; done < n; done += 64) {
        CHECK_EQ(cl_pool_get(pool, 0, index, 64), 64);
        before = faults();
        for (uint32_t i = 0; i < 64; i++)
            write_to(index[i]);
        all += faults() - before;
    }
    return all;
}

static unsigned fetch_all(void)
{
    unsigned n = 0;
    while (cl_ahead_fetch(&ahead))
        n++;
    return n;
}

static void stays_ahead(void)
{
    uint64_t mapped = (uint64_t)ITEM * ITEMS;
    begin(ITEMS, 1, mapped);
    CHECK(!cl_ahead_fetch(&ahead), "nothing is in use");
    CHECK_EQ(pages_there(), 0);
    long first = take(64);
    CHECK(first >= (long)(64 * ITEM / page_bytes), "%ld faults", first);
    CHECK(fetch_all() > 0);
    /* Who needs little takes little. */
    uint64_t there = pages_there(), most = (64 + SMALL) * ITEM / page_bytes;
    CHECK(there == most, "%llu pages of %llu", (unsigned long long)there, (unsigned long long)most);
    CHECK_EQ(take(SMALL), 0);
    fetch_all();
    /* Used so fast that somebody has to wait if they are not fetched, and slowly enough if they are. */
    long taken = 0;
    for (unsigned i = 0; i < 20; i++) {
        taken += take(AHEAD);
        fetch_all();
    }
    CHECK(taken < 8, "%ld faults", taken);
    CHECK_EQ(pages_there(), (64 + SMALL + 21 * AHEAD) * ITEM / page_bytes);
    /* The last ones: not beyond the pool. */
    CHECK(take(ITEMS - 64 - SMALL - 20 * AHEAD) > 0);
    fetch_all();
    CHECK_EQ(pages_there(), ITEMS * ITEM / page_bytes);
    for (uint32_t i = 0; i < ITEMS; i++)
        CHECK(base[(uint64_t)i * ITEM] == (uint8_t)i && base[(uint64_t)i * ITEM + ITEM - 1] == (uint8_t)i);
    end(mapped);
}

/* What was used in a hurry has its pages: they are not asked for one after the other. */
static void catches_up(void)
{
    uint64_t mapped = (uint64_t)ITEM * ITEMS;
    begin(ITEMS, 1, mapped);
    CHECK(take(8192) > 0);
    unsigned steps = fetch_all(), needed = (AHEAD + CL_POOL_CACHE) / (CL_AHEAD_BYTES / ITEM) + 1;
    CHECK(steps <= needed, "%u steps, %u needed", steps, needed);
    CHECK_EQ(pages_there(), (8192 + AHEAD) * ITEM / page_bytes);
    end(mapped);
}

/* Where the kernel has no page, or knows nothing of this, it is asked once. */
static void gives_up(void)
{
    uint64_t mapped = (uint64_t)ITEM * ITEMS;
    begin(ITEMS, 1, mapped);
    CHECK_EQ(mprotect(base, mapped, PROT_READ), 0);
    uint32_t index[64];
    CHECK_EQ(cl_pool_get(pool, 0, index, 64), 64);
    CHECK_EQ(fetch_all(), 1);
    CHECK(!cl_ahead_fetch(&ahead));
    end(mapped);
}

static uint32_t stop;

static void *fetches(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&stop))
        (void)cl_ahead_fetch(&ahead);
    return NULL;
}

/* Several fetch while others write: no byte changes. */
static void together(void)
{
    uint64_t mapped = (uint64_t)ITEM * ITEMS;
    pthread_t threads[THREADS];
    begin(ITEMS, 1, mapped);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, fetches, NULL), 0);
    (void)take(ITEMS);
    cl_store_release(&stop, 1);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < ITEMS; i++)
        for (uint32_t at = 0; at < ITEM; at += 512)
            CHECK(base[(uint64_t)i * ITEM + at] == (uint8_t)i);
    end(mapped);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"stays_ahead", stays_ahead}, {"catches_up", catches_up}, {"gives_up", gives_up}, {"together", together}};
    CHECK_EQ(argc, 2);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            puts("ok");
            return 0;
        }
    return 2;
}
