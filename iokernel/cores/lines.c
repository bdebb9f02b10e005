/* What reading takes by itself, of what a decision reads: so that its time can be told from that of the caches.
 *
 * One decision in IO_TIMED is preceded by this, another than the one that is timed: the lines are in the state in which
 * that one finds them. They are the lines of all applications that a decision reads whatever it finds: the words that
 * they share with the loop, of which those who ran since the last decision are in another core's cache, and the loop's
 * own copies and rows. All are fetched at once, and what is in another core's cache first. A decision reads more, of
 * those that have changed. */
#include "../state/internal.h"

static inline uint64_t first_of(const void *line)
{
    return cl_load_relaxed((const uint64_t *)line);
}

static void ask_for_all(const struct io_cores *c)
{
    io_fetch_words(c);
    for (uint32_t i = 0; i < c->n_apps; i++) {
        const struct io_app *app = c->apps[i];
        for (uint32_t j = 0; j < app->n_kthreads; j++) {
            const struct cl_arena_kthread *lines = io_lines_of(&app->kthreads[j]);
            cl_prefetch(&lines->park);
            cl_prefetch(&lines->signals);
        }
        cl_prefetch(&c->table[i]);
        cl_prefetch(&c->table[i].demand);
    }
}

static uint64_t read_all(const struct io_cores *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_apps; i++) {
        const struct io_app *app = c->apps[i];
        sum += first_of(&app->cores) + first_of(&c->table[i]) + first_of(&c->table[i].demand);
        for (uint32_t j = 0; j < app->n_kthreads; j++) {
            const struct io_kthread *k = &app->kthreads[j];
            const struct cl_arena_kthread *lines = io_lines_of(k);
            sum += first_of(&k->member.signals) + first_of(&lines->park) + first_of(&lines->signals);
        }
    }
    for (uint32_t i = 0; i < c->n; i++) {
        sum += first_of(&c->core[i]);
        if (c->core[i].owner)
            sum += cl_load_relaxed(&io_lines_of(c->core[i].owner)->rx_head);
    }
    return sum;
}

void io_lines_time(struct io_loop *loop)
{
    struct io_cores *c = &loop->cores;
    uint64_t begin = cl_tsc_ordered();
    ask_for_all(c);
    uint64_t sum = read_all(c);
    __asm__ volatile("" ::"r"(sum)); /* which makes it be read */
    uint64_t ticks = cl_tsc_ordered() - begin;
    cl_hist_record(c->reading, (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)ticks));
}
