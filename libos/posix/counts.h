/* What a process counts of the calls that are wrapped, in memory at which others may look (corelane stat): a memfd of
 * the name CL_POSIX_COUNTS_NAME, made with the first socket of ours. Nobody has to be asked, and a process that hangs
 * shows what it last did. A child has memory of its own, and `pid` says whose this is.
 *
 * A thread counts in a block that is its own, by plain stores; what ended threads counted
 * stays. Threads beyond CL_POSIX_BLOCKS - 1 at a time share the last, which is then a little too low. */
#ifndef CORELANE_LIBOS_POSIX_COUNTS_H
#define CORELANE_LIBOS_POSIX_COUNTS_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_POSIX_COUNTS_MAGIC 0x31736978736f70ull
#define CL_POSIX_CALLS 80   /* functions of libc's */
#define CL_POSIX_BLOCKS 64  /* of threads */
#define CL_POSIX_REASONS 64 /* sentences */
#define CL_POSIX_KTHREADS 64

struct cl_posix_call_counts {
    uint64_t ours, failed; /* on sockets and epoll descriptors of ours; of those, with an error */
    uint64_t passed;       /* went on to libc, if calls are traced */
};

/* Something that a program asked for and did not get, or not as on Linux. */
struct cl_posix_reason {
    uint64_t times;
    char sentence[248];
};

/* Of a kthread: of connections that stay at the kthread of the thread that polls them, how often one was told of
 * something there, and elsewhere. Writer: who is inside of the kthread. A cache line. */
struct cl_posix_told_counts {
    uint64_t home, away;
    uint64_t away_in_call; /* of those, in a call of some thread that had to be made there, not in a turn */
    uint64_t unused[5];
};

struct cl_posix_counts {
    uint64_t magic;
    uint32_t pid;
    uint32_t traces;           /* calls that are passed on are counted */
    uint64_t made[2], gone[2]; /* sockets of ours, TCP and UDP. RMW */
    uint64_t to_linux[2];      /* of those that are gone: they turned out to be Linux'. RMW */
    struct cl_posix_told_counts told[CL_POSIX_KTHREADS];
    uint64_t sent_home; /* connections that got ready elsewhere, and were handed to their home. Writer: the caretaker */
    uint64_t stolen;    /* connections that were ready, and that a sibling took from where they were. The same */
    char names[CL_POSIX_CALLS][24];
    struct cl_posix_reason reasons[CL_POSIX_REASONS];
    struct cl_posix_call_counts calls[CL_POSIX_BLOCKS][CL_POSIX_CALLS]; /* writer: the thread; readers: anybody */
};
// cffi: end
#define CL_POSIX_COUNTS_NAME "corelane-posix"

/* Before all others: memory for them. names: n of the functions that are wrapped. -errno. */
CL_API int cl_posix_counts_open(const char *const *names, unsigned n);
CL_API struct cl_posix_counts *cl_posix_counts(void);
/* Others may look from now on. */
void cl_posix_counts_share(void);
/* A block for the calling thread, until it ends. */
CL_API struct cl_posix_call_counts *cl_posix_counts_block(void);

#endif
