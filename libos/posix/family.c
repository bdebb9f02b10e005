/* See family.h. */
#include "family.h"
#include "linux.h"
#include "waits.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define LOOK_NS 50000000 /* how often to look where Linux does not tell of an end */
#define TRIES 8          /* that find somebody else gone, before they give up for now */

static uint32_t begun;                   /* RMW */
static int64_t begun_by;                 /* a process; written before others can be forked that have its sockets */
static uint32_t tries_again;             /* nobody has it whose end would tell */
static int lock_fd = -1, holder_fd = -1; /* the file; readable once who has the runtime has ended. Release, acquire */

void cl_posix_family_begin(void)
{
    if (cl_load_relaxed(&begun) || __atomic_exchange_n(&begun, 1, __ATOMIC_RELAXED))
        return;
    begun_by = cl_linux(SYS_getpid);
    cl_store_release(&lock_fd, cl_posix_inner((int)cl_linux(SYS_memfd_create, "corelane-posix-family", MFD_CLOEXEC)));
}

static int64_t lock(int command, struct flock *l)
{
    *l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return cl_linux(SYS_fcntl, cl_load_acquire(&lock_fd), command, l);
}

/* A number that stays the same, whoever it is: others may be asleep by it. */
static void watch(int pidfd)
{
    if (pidfd < 0)
        return;
    int before = cl_load_relaxed(&holder_fd);
    if (before < 0) {
        cl_store_release(&holder_fd, cl_posix_inner(pidfd));
        return;
    }
    (void)cl_linux(SYS_dup3, pidfd, before, O_CLOEXEC);
    (void)cl_linux(SYS_close, pidfd);
}

/* Whoever has it. False: he has gone meanwhile. */
static bool watch_holder(void)
{
    struct flock l, again;
    if (lock(F_GETLK, &l) || l.l_type == F_UNLCK)
        return false;
    int pidfd = (int)cl_linux(SYS_pidfd_open, l.l_pid, 0);
    if (lock(F_GETLK, &again) || again.l_type == F_UNLCK || again.l_pid != l.l_pid) { /* it is another one's, perhaps */
        if (pidfd >= 0)
            (void)cl_linux(SYS_close, pidfd);
        return false;
    }
    watch(pidfd);
    return true;
}

bool cl_posix_family_is_forked(void)
{
    return cl_load_relaxed(&begun) && cl_linux(SYS_getpid) != begun_by;
}

void cl_posix_family_give_up(void)
{
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};
    (void)cl_linux(SYS_fcntl, cl_load_acquire(&lock_fd), F_SETLK, &l);
    cl_store_relaxed(&tries_again, 1); /* by its own threads, which look again after LOOK_NS at most */
}

int cl_posix_family_claim(void)
{
    struct flock l;
    cl_store_relaxed(&tries_again, 0);
    for (int i = 0; i < TRIES; i++) {
        int64_t rc = lock(F_SETLK, &l);
        if (rc != -EAGAIN && rc != -EACCES)
            return 0; /* or there is no such file: it has no family */
        if (watch_holder())
            break;
    }
    return -EAGAIN;
}

int cl_posix_family_sleep(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask,
                          struct cl_posix_object *held)
{
    struct cl_posix_set *set = cl_posix_own_set();
    int64_t left = cl_posix_left(deadline_ns);
    if (!set)
        return -ENOMEM;
    fds[n] = (struct pollfd){cl_load_relaxed(&tries_again) ? -1 : cl_load_acquire(&holder_fd), POLLIN, 0};
    if (fds[n].fd < 0 && (left < 0 || left > LOOK_NS))
        left = LOOK_NS;
    fds[n + 1] = (struct pollfd){set->event_fd, POLLIN, 0};
    struct timespec t = {left / 1000000000, left % 1000000000};
    int rc = -ECANCELED;
    cl_posix_set_arm_anyway(set);
    if (cl_posix_interrupted_begin(set, held)) {
        rc = (int)cl_linux(SYS_ppoll, fds, n + 2, left < 0 ? NULL : &t, mask, 8);
        cl_posix_interrupted_end();
    }
    cl_posix_set_disarm(set);
    if (cl_posix_is_cancelled())
        return -ECANCELED;
    return rc <= 0 ? rc : rc - (fds[n].revents != 0) - (fds[n + 1].revents != 0);
}
