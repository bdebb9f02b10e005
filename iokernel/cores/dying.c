/* Applications that were killed, whose threads exit on a core that is another's by now.
 *
 * The threads of a killed process run to their end in the kernel, and the last one gives back its memory, which takes
 * milliseconds. That may be any of them, on whatever CPU it is woken: the old owner of a core itself, or another one in
 * its place. No signal reaches them. A new owner that sleeps preempts an old one which was demoted as soon as it is
 * woken; one that yield-waits is in line already, and is not switched to before the kernel decides anew, as it does at
 * a tick (4 ms).
 *
 * So while a new owner does not begin after the step that found the old one dead, or dying, all threads of that process
 * that exit become SCHED_IDLE, and nicer by one, at which the kernel decides anew on the CPU where one of them runs.
 * Should it decide for the same one, since the new owner has had more than its share up to then (not for long: a
 * kthread's slices are short, libos/sched/kthread.c), that is done again after cede_us, MOST_KICKS times. They go on
 * with what the others leave of the CPU. Threads that do not exit are not touched: a nice value cannot be given back
 * without the right to.
 *
 * Tests: tests/iokernel/cores/c/dying.c. */
#include "../state/internal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_KICKS 4
#define EXITING 0x4 /* PF_EXITING of the kernel's include/linux/sched.h */
/* Fields of stat; proc(5) counts from 1. */
#define NAME 2
#define FLAGS 9
#define PENDING 31
#define LONGEST_ENTRY 32 /* bytes, of a directory of numbers */

/* As getdents64(2) fills it. */
struct entry {
    uint64_t inode, next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static uint64_t field(const char *text, unsigned n)
{
    const char *at = strrchr(text, ')'); /* a name may have anything in it */
    for (unsigned i = NAME; at && i < n; i++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Whether a thread exits, or will as soon as it runs. */
static bool exits(int tasks, const char *tid)
{
    static const char file[] = "/stat";
    char path[32], text[1024];
    size_t length = strnlen(tid, sizeof path - sizeof file);
    memcpy(path, tid, length);
    memcpy(path + length, file, sizeof file);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return field(text, FLAGS) & EXITING || field(text, PENDING) >> (SIGKILL - 1) & 1;
}

bool io_dying_exits(const struct io_kthread *k)
{
    char text[16] = {0}, *tid = text + sizeof text - 1;
    for (int32_t left = k->member.tid; left > 0; left /= 10)
        *--tid = (char)('0' + left % 10);
    return k->member.dead || exits(k->member.tasks_fd, tid);
}

/* Of the next threads those that exit give way; *last: there are no more. Returns how many there were. */
static unsigned kick_some(struct io_loop *loop, int tasks, bool *last)
{
    _Alignas(struct entry) char entries[16 * LONGEST_ENTRY];
    unsigned found = 0;
    long n = syscall(SYS_getdents64, tasks, entries, sizeof entries);
    *last = n + LONGEST_ENTRY <= (long)sizeof entries;
    for (long at = 0; at < n;) {
        const struct entry *e = (const struct entry *)(entries + at);
        int tid = atoi(e->name); /* 0: one of the two that are no threads */
        at += e->bytes;
        if (tid <= 0 || !exits(tasks, e->name))
            continue;
        sched_setscheduler(tid, SCHED_IDLE, &(struct sched_param){0});
        setpriority(PRIO_PROCESS, (id_t)tid, cl_max(getpriority(PRIO_PROCESS, (id_t)tid) + 1, 20 - MOST_KICKS));
        found++;
    }
    io_count(loop->stats.syscalls, 1 + 6 * found);
    io_count(loop->cores.stats.syscalls, 1 + 6 * found);
    return found;
}

void io_dying_begin(const struct io_loop *loop, struct io_core *core, uint64_t now)
{
    core->dying = core->from;
    core->kicks = 0;
    core->kicking = false;
    core->next_kick =
        core->from->member.dead ? now : now + loop->cores.cede; /* who was demoted only now goes by itself */
}

/* Of a process with many threads, sixteen or so in a round: the loop has others to serve. */
void io_dying_round(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    if ((int64_t)(now - core->next_kick) < 0)
        return;
    bool last = true;
    if (!core->kicking) {
        core->kicked = 0;
        core->kicking = io_dying_exits(core->dying) && lseek(core->dying->member.tasks_fd, 0, SEEK_SET) == 0;
    }
    if (core->kicking)
        core->kicked += kick_some(loop, core->dying->member.tasks_fd, &last);
    if (!last)
        return;
    io_count(loop->cores.stats.dying, core->kicks == 0 ? core->kicked : 0);
    core->kicking = false;
    core->next_kick = now + loop->cores.cede;
    if (core->kicked == 0 || ++core->kicks == MOST_KICKS)
        core->dying = NULL;
}
