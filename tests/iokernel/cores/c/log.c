/* A loop's log of moves: what a reader gets of it who comes in time, too late, or is overtaken. Entry number i has the
 * stamp i. */
#include "world.h"

#include "../../../../iokernel/state/internal.h"

#include <signal.h>
#include <sys/mman.h>

#define PAGE 65536 /* bytes; of any machine's pages a multiple */

static struct cl_io_move out[CL_IO_MOVES_LOG] __attribute__((aligned(PAGE)));

static void log_up_to(struct io_loop *loop, uint64_t end)
{
    while (loop->cores.logged < end)
        io_cores_log(loop, loop->cores.logged, &loop->cores.core[0], 1, 1, CL_IO_LOG_WOKEN, CL_IO_STEP_WAKE, NULL);
}

/* One answer. Returns how many entries it has, and checks that they are those up to *next, with nothing lost in
 * between. */
static uint32_t answer(struct cl_io *io, uint64_t *next, uint32_t n, uint64_t *lost)
{
    uint64_t before = *next, gone = 0;
    uint32_t got = cl_io_moves(io, 0, next, out, n, &gone);
    CHECK(got <= n && *next == before + gone + got);
    for (uint32_t i = 0; i < got; i++)
        CHECK_EQ(out[i].tsc, before + gone + i);
    *lost += gone;
    return got;
}

static void what_is_written_over_is_counted(void)
{
    struct world w;
    uint64_t next = 0, lost = 0;
    world_new(&w, (struct setting){0});
    struct io_loop *loop = &w.io->loops[0];
    CHECK_EQ(cl_io_moves_end(w.io, 0), 0);
    log_up_to(loop, 10);
    CHECK_EQ(cl_io_moves_end(w.io, 0), 10);
    CHECK(answer(w.io, &next, 4, &lost) == 4 && answer(w.io, &next, 100, &lost) == 6 && lost == 0);
    CHECK(answer(w.io, &next, 100, &lost) == 0 && next == 10);
    log_up_to(loop, 10 + CL_IO_MOVES_LOG - 1); /* as many as are there for certain */
    CHECK(answer(w.io, &next, CL_IO_MOVES_LOG, &lost) == CL_IO_MOVES_LOG - 1 && lost == 0);
    log_up_to(loop, next + CL_IO_MOVES_LOG);
    CHECK(answer(w.io, &next, CL_IO_MOVES_LOG, &lost) > CL_IO_MOVES_LOG / 2 && lost > 0);
    CHECK_EQ(next, cl_io_moves_end(w.io, 0));
    next += 5; /* beyond the end: nothing is there yet */
    CHECK(answer(w.io, &next, 100, &lost) == 0 && next == cl_io_moves_end(w.io, 0) + 5);
    world_delete(&w);
}

static struct io_loop *lapped;
static char *trap;

/* The reader stores into a page for the first time: meanwhile the loop comes round once and a half. */
static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    if ((char *)info->si_addr < trap || (char *)info->si_addr >= trap + PAGE)
        abort();
    mprotect(trap, PAGE, PROT_READ | PROT_WRITE);
    log_up_to(lapped, lapped->cores.logged + CL_IO_MOVES_LOG * 3 / 2);
}

static void no_answer_has_a_gap(void)
{
    struct world w;
    uint64_t next = 0, lost = 0;
    world_new(&w, (struct setting){0});
    lapped = &w.io->loops[0];
    trap = (char *)out + PAGE;
    CHECK(sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, NULL) == 0);
    log_up_to(lapped, 2000);
    CHECK(mprotect(trap, PAGE, PROT_NONE) == 0);
    CHECK_EQ(answer(w.io, &next, CL_IO_MOVES_LOG, &lost), PAGE / sizeof *out); /* what was whole before */
    CHECK_EQ(lost, 0);
    CHECK(answer(w.io, &next, CL_IO_MOVES_LOG, &lost) > 0 && lost >= CL_IO_MOVES_LOG / 2);
    CHECK_EQ(next, cl_io_moves_end(w.io, 0));
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(what_is_written_over_is_counted), SCENARIO(no_answer_has_a_gap))
