/* What the loop has the kernel do to a kthread's thread, and what the kernel says of it.
 *
 * Each call is counted, and the application for which a call is made pays for it from its bucket, which is checked
 * before a move begins. Reads are charged to nobody. None of it waits. */
#include "../state/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void count_call(struct io_loop *loop)
{
    io_count(loop->stats.syscalls, 1);
    io_count(loop->cores.stats.syscalls, 1);
}

static void charge(struct io_loop *loop, struct io_app *app)
{
    cl_bucket_take(&app->wakes, 1);
    count_call(loop);
}

bool io_thread_wake(struct io_loop *loop, struct io_kthread *k)
{
    charge(loop, k->app);
    return syscall(SYS_futex, &k->member.state->grant, FUTEX_WAKE, 1, NULL, NULL, 0) > 0;
}

static void has_ended(struct io_kthread *k)
{
    k->member.dead = true;
    k->app->cores.stands = false;
}

int io_thread_signal(struct io_loop *loop, struct io_kthread *k, int signal)
{
    charge(loop, k->app);
    int rc = syscall(SYS_tgkill, k->app->cores.pid, k->member.tid, signal) < 0 ? -errno : 0;
    if (rc == -ESRCH)
        has_ended(k);
    return rc;
}

bool io_thread_alive(struct io_loop *loop, struct io_kthread *k)
{
    return !k->member.dead && io_thread_signal(loop, k, 0) != -ESRCH;
}

bool io_thread_bind(struct io_loop *loop, struct io_kthread *k, const cpu_set_t *set)
{
    charge(loop, k->app);
    io_count(loop->cores.stats.affinities, 1);
    bool failed = sched_setaffinity(k->member.tid, sizeof *set, set) < 0;
    io_count(loop->cores.stats.affinities_failed, failed);
    return !failed;
}

bool io_thread_is_bound(struct io_loop *loop, const struct io_kthread *k, int32_t cpu)
{
    cpu_set_t set;
    count_call(loop);
    return sched_getaffinity(k->member.tid, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
}

int io_thread_demote(struct io_loop *loop, struct io_kthread *k)
{
    struct io_member *m = &k->member;
    if (m->stays_classed)
        return -EPERM;
    if (!m->demoted) {
        count_call(loop);
        m->had_sched = syscall(SYS_sched_getattr, m->tid, m->sched, sizeof m->sched, 0) == 0;
    }
    charge(loop, k->app);
    return sched_setscheduler(m->tid, SCHED_IDLE, &(struct sched_param){0}) < 0 ? -errno : 0;
}

void io_thread_restore(struct io_loop *loop, struct io_kthread *k)
{
    struct io_member *m = &k->member;
    charge(loop, k->app);
    if (m->had_sched && syscall(SYS_sched_setattr, m->tid, m->sched, 0) == 0)
        return;
    charge(loop, k->app); /* what it had it may have had by a right that we have not */
    sched_setscheduler(m->tid, SCHED_OTHER, &(struct sched_param){0});
}

/* -1: there is no such file, or *rc says what is lacking. */
static int open_of(const struct io_kthread *k, const char *file, int *rc)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", k->app->cores.pid, k->member.tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        *rc = -errno;
    return fd;
}

static void close_of(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int io_thread_open(struct io_kthread *k)
{
    int rc = 0;
    k->member.account_fd = open_of(k, "schedstat", &rc);
    k->member.status_fd = open_of(k, "status", &rc);
    k->member.tasks_fd = open_of(k, "..", &rc);
    return rc;
}

void io_thread_close(struct io_kthread *k)
{
    close_of(&k->member.account_fd);
    close_of(&k->member.status_fd);
    close_of(&k->member.tasks_fd);
}

/* The whole of a file, as text. False: it cannot be read; its thread is gone, as a rule. */
static bool read_text(struct io_loop *loop, int fd, char *text, size_t room)
{
    count_call(loop);
    errno = 0;
    ssize_t n = pread(fd, text, room - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

bool io_thread_account(struct io_loop *loop, struct io_kthread *k, struct io_account *out)
{
    char text[96], *rest;
    if (!read_text(loop, k->member.account_fd, text, sizeof text)) {
        if (errno == ESRCH) /* the file is that thread's, whoever has its number by now */
            has_ended(k);
        return false;
    }
    out->ran_ns = strtoll(text, &rest, 10);
    strtoull(rest, &rest, 10); /* for how long it was in line */
    out->turns = strtoull(rest, NULL, 10);
    return true;
}

/* The number behind a line's name; the kernel escapes a line's end in a thread's name. */
static uint64_t number_of(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    return at ? strtoull(at + strlen(line), NULL, 10) : 0;
}

bool io_thread_status(struct io_loop *loop, const struct io_kthread *k, struct io_thread_status *out)
{
    char text[4096]; /* it has 1.5 KB */
    if (!read_text(loop, k->member.status_fd, text, sizeof text))
        return false;
    const char *state = strstr(text, "\nState:\t");
    out->state = state ? state[strlen("\nState:\t")] : '?';
    out->left = number_of(text, "\nvoluntary_ctxt_switches:\t") + number_of(text, "\nnonvoluntary_ctxt_switches:\t");
    return true;
}

bool io_thread_in_line(struct io_loop *loop, const struct io_kthread *k)
{
    struct io_thread_status s;
    return io_thread_status(loop, k, &s) && (s.state == 'R' || s.state == 'D');
}
