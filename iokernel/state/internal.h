/* Private to the iokernel: what its files share. Everything here is private memory of the iokernel's process, but for
 * what the rings and `park` point to. */
#ifndef CORELANE_IOKERNEL_STATE_INTERNAL_H
#define CORELANE_IOKERNEL_STATE_INTERNAL_H

#include <corelane/runtime/clock.h>
#include "../../runtime/memory.h"
#include "../../runtime/net.h"
#include "../../runtime/ring.h"
#include "cores.h"
#include "iokernel.h"
#include "limits.h"
#include "yields.h"

#include <pthread.h>

#define IO_BURST 32           /* descriptors read at a time */
#define IO_UPLINK_BURST 64    /* frames from an uplink a round */
#define IO_STAGED 128         /* frames that wait for an uplink, a loop */
#define IO_SPARE 64           /* empty uplink buffers that a loop holds ready */
#define IO_HEADER 64          /* bytes of a frame that decide what happens to it */
#define IO_COMMANDS 64        /* commands under way to a loop */
#define IO_HANDOVER_SLOTS 256 /* frames under way from one loop to another */
#define IO_TABLE 1024         /* slots of a lookup table; at most a quarter are used */
#define IO_FDB 256            /* learned addresses beyond uplinks, if there are several */
#define IO_ERR_BYTES 256

struct io_app;
struct io_group; /* switch/members.h */
struct io_asking;

/* What the application may do with a receive buffer that it holds: send it, or give it back; or hand it on, too. */
enum { IO_NOT_LENT, IO_LENT, IO_LENT_ASKS };

/* Whether frames have come for a kthread that may be parked: none, only such as go to everybody, or others. */
enum { IO_NOT_TOUCHED, IO_TOUCHED_BY_FLOOD, IO_TOUCHED };

/* One kthread's rings, as the home loop sees them. */
struct io_kthread {
    struct cl_ring_rx tx; /* its tx ring: we consume */
    struct cl_ring_tx rx; /* its rx ring: we produce */
    uint32_t *park;       /* its park word, in the arena */
    struct io_app *app;
    uint64_t heard;  /* stamp: its tx ring had something last; or the wait that began then is half over (doorbell.h) */
    uint8_t touched; /* IO_NOT_TOUCHED, or in the loop's list of kthreads to look after */
    bool blocked;    /* it says that it runs, and sleeps in the kernel or was stopped (blocked.c) */
    /* The first push since its signals were last read; sampled is set where nobody reads them. */
    bool sampled;
    uint32_t sample_tail;
    uint64_t sample_tsc;
    struct io_member member; /* where cores are managed */
    /* Descriptors with CL_TX_STAMP (switch/stamps.c): how many were taken, ever; of how many both stamps are told; of
     * those between, `staging` are given on when the loop has sent `sent_by` frames. */
    struct cl_arena_kthread *lines; /* in the arena */
    uint32_t stamped, told, staging;
    bool stamping; /* it is in the loop's list, and this is the next one there */
    uint64_t sent_by;
    struct io_kthread *next_stamping;
};

/* A registered application. Fields above `kthreads` are constant and may be read by every loop; the rest is the home
 * loop's own. */
struct io_app {
    uint64_t mac; /* 48 bits, as from io_mac() */
    uint32_t ip_be;
    uint32_t id, loop;
    uint32_t n_kthreads, n_rx, n_buffers, buffer_bytes, stride;
    bool any_ethertype;
    uint32_t place;         /* in its group */
    struct io_group *group; /* NULL: it is of none, and its addresses are its own */
    uint8_t *buffers;       /* in the arena, as the next */
    struct cl_arena_doorbell *doorbell;
    struct io_kthread *kthreads;

    uint32_t n_free CL_ALIGNED(CL_CACHELINE); /* writer: home loop; readers: anybody (relaxed) */
    /* Receive buffers from here on were never used and have no pages. They are not in `free` yet, so that their entries
     * there take no memory either. Writer: home loop; readers: anybody (relaxed) */
    uint32_t fresh;
    uint32_t *free;           /* stack of receive buffers: the last that came back goes first, it is warm */
    uint8_t *lent;            /* IO_LENT, IO_LENT_ASKS: the application holds this receive buffer */
    struct io_asking *asking; /* of a member of a group: of its buffers that are IO_LENT_ASKS */
    int32_t deficit;
    uint32_t greedy_turns;                 /* turns in a row that ended with frames left, up to GREEDY_TURNS */
    uint64_t greedy_since;                 /* stamp of the first of them */
    uint32_t next_kthread;                 /* whose turn it is within the application */
    uint32_t next_look;                    /* at whose ring a round begins to look */
    uint32_t staged;                       /* of its frames wait for uplinks */
    bool throttled;                        /* a limit keeps frames in its rings */
    struct cl_bucket frames, bytes, wakes; /* wakes: system calls that we make for it */
    struct cl_bucket floods;               /* frames for everybody that it may send */
    struct cl_io_app_stats stats CL_ALIGNED(CL_CACHELINE);
    struct io_allotment cores; /* where cores are managed */
    bool ready, draining;      /* as a member of a group */

    /* The controlling thread's. */
    struct cl_memory memory;
    struct cl_arena_layout layout;
    int doorbell_fd;
    bool doomed;       /* cannot be used any more, only be removed */
    uint32_t removing; /* bit l: loop l has its IO_REMOVE */
    struct io_app *next;
};

/* What a loop reads of a frame before it moves it. */
struct io_frame {
    const uint8_t *header; /* private copy of the first min(len, IO_HEADER) bytes, or the frame itself if trusted */
    const uint8_t *rest;   /* where bytes from IO_HEADER on are; may change under our eyes */
    uint32_t len;
    uint32_t hash; /* RSS hash, 0: not yet computed */
    bool flood;    /* goes to everybody */
    /* Members of a group, a bit each, that were asked whether its flow is theirs, with who gets it now; 0: nobody is
     * asked (switch/members.h) */
    uint16_t asked;
};

/* A loop's end of an uplink queue, and frames on their way out. */
struct io_uplink {
    struct cl_nic *nic;
    uint64_t mac; /* the NIC's own */
    bool share_mac;
    bool has_tx;       /* this loop may use transmit queue `tx_queue` */
    uint32_t tx_queue; /* and the first receive queue of this loop */
    uint32_t n_spare, n_staged;
    struct cl_frame spare[IO_SPARE];
    struct cl_frame staged[IO_STAGED];
    struct io_app *owner[IO_STAGED]; /* whose share a staged frame uses; NULL: another loop's, or our own */
    uint32_t staged_other;
    struct cl_bucket floods; /* frames for everybody that it may bring to this loop */
    uint8_t retries;         /* sleeps in a row after which it took nothing of what is staged */
    bool forgotten;          /* its device went away, and its descriptors are watched no more */
    uint64_t held_since;     /* stamp since when what is staged waits for more; 0: it does not */
};

/* Frames from one loop to another: slot i of the ring has its own buffer i. Word: length and kind. */
struct io_handover {
    struct cl_ring_tx tx CL_ALIGNED(CL_CACHELINE); /* the giving loop's */
    struct cl_ring_rx rx CL_ALIGNED(CL_CACHELINE); /* the taking loop's */
    uint32_t head CL_ALIGNED(CL_CACHELINE);
    struct cl_desc slots[IO_HANDOVER_SLOTS];
    uint8_t *frames; /* touched only as far as it is used */
    uint32_t stride;
};
#define IO_HAND_UNICAST 0u /* to an application of the taking loop */
#define IO_HAND_FLOOD 1u   /* to all applications of the taking loop */
#define IO_HAND_UPLINK 2u  /* to the taking loop's uplink `uplink` */

struct io_slot {
    uint64_t key;
    struct io_app *app; /* NULL: free */
};

/* An application's doorbell word, and what the loop makes of it; of all applications side by side. */
struct io_doorbell {
    uint64_t *rung;  /* in the arena */
    uint64_t seen;   /* as it was last */
    uint64_t polled; /* kthreads, a bit each, whose tx rings are polled */
};

/* One loop. Everything but the command ring, `stop` and statistics is its thread's own. */
struct io_loop {
    struct cl_io *io;
    uint32_t index;
    uint32_t n_apps;   /* homed here */
    uint32_t next_app; /* whose turn it is */
    struct io_app *apps[CL_IO_MAX_APPS];
    struct io_doorbell doorbells[CL_IO_MAX_APPS];     /* of apps[i] */
    uint32_t look_app, look_kthread;                  /* who is looked at next without having rung */
    struct io_slot by_mac[IO_TABLE], by_ip[IO_TABLE]; /* all applications of the iokernel */
    uint32_t n_uplinks;
    bool shares_mac; /* one of them does */
    struct io_uplink *uplinks;
    struct io_handover **in, **out; /* from and to loop i; NULL at our own index */
    bool handed[CL_SHM_MAX_LOOPS];  /* something was handed to loop i in this round */
    uint64_t fdb[IO_FDB];           /* mac << 16 | uplink + 1 */
    uint64_t mtu_frame;             /* longest frame */

    /* Kthreads that got frames and may be parked; wake.c. */
    uint32_t n_touched;
    struct io_kthread **touched;
    uint64_t last_fence;

    struct io_cores cores; /* empty where cores are not managed */

    uint64_t now;                /* stamp at the start of the round */
    struct io_kthread *stamping; /* whose frames were taken, and are perhaps not given on yet (switch/stamps.c) */
    const struct io_app *active; /* that last had work */
    uint64_t shared_until;       /* round until which several applications count as busy */
    uint64_t modest_until;       /* round until which one of them counts as not greedy */
    uint32_t sent_to;            /* uplinks, a bit each, to which whose turn it is has sent in it */
    uint32_t more_for; /* and those to which somebody has in this round whose turn ended before his frames did */

    /* idle.c */
    uint64_t idle_since, last_heartbeat;
    uint64_t woke;  /* its last sleep ended, or was to end */
    uint64_t slept; /* sleeps begun, those given up included */
    struct io_yields yields;
    bool was_busy;
    int epoll_fd, event_fd;
    bool event_fd_shared; /* an uplink's parker has it: whoever fills that queue may write to it even after our end */
    struct cl_state_loop *state; /* shared, we write */

    struct cl_io_loop_stats stats CL_ALIGNED(CL_CACHELINE);

    /* Commands. Producer: the controlling thread. */
    struct cl_ring_rx commands CL_ALIGNED(CL_CACHELINE);
    uint64_t commands_done; /* writer: loop (release); reader: controlling thread (acquire) */
    struct cl_ring_tx commands_tx CL_ALIGNED(CL_CACHELINE);
    uint64_t commands_sent;
    struct cl_desc command_slots[IO_COMMANDS];
    uint32_t command_head;
    uint32_t stop; /* writer: controlling thread; reader: loop. Relaxed: nothing else depends on it */
    bool running;
    pthread_t thread;
};

struct cl_io {
    struct cl_io_config config;
    const struct cl_clock *clock;
    struct cl_clock own_clock;
    uint64_t spin_ticks, pause_ticks, heartbeat_ticks, fence_ticks, quiet_ticks, greedy_ticks;
    struct io_loop *loops;
    uint32_t n_uplinks;
    struct cl_nic *nics[CL_IO_MAX_UPLINKS];
    bool share_mac[CL_IO_MAX_UPLINKS];
    struct cl_memory state;
    bool running;
    bool given_back; /* kthreads have back what they had: nothing is done to them any more */
    uint32_t next_id, n_apps;
    struct io_app *apps;
    uint64_t slots_used[CL_SHM_MAX_SLOTS / 64]; /* of the state segment, by kthreads */
};

#define IO_ADD 1u
#define IO_REMOVE 2u
#define IO_THREADS 3u /* the application's threads are known */
#define IO_POLICY 4u  /* another policy waits to be taken; no application */
#define IO_STATE 5u   /* a member of a group is ready, or drains: CL_MEMBER_... << IO_STATE_SHIFT */
#define IO_STATE_SHIFT 8
#define IO_STATE_MASK ((1u << IO_STATE_SHIFT) - 1)

/* 48-bit key of a MAC address. */
static inline uint64_t io_mac(const uint8_t *mac)
{
    return cl_get32(mac) | (uint64_t)cl_get16(mac + 4) << 32;
}

static inline void io_put_mac(uint8_t *to, uint64_t mac)
{
    cl_put32(to, (uint32_t)mac);
    cl_put16(to + 4, (uint16_t)(mac >> 32));
}

#define IO_BROADCAST 0xffffffffffffull

static inline uint32_t io_slot_of(uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 54); /* 10 bits: IO_TABLE */
}

static inline struct io_app *io_find(const struct io_slot *table, uint64_t key)
{
    for (uint32_t i = io_slot_of(key); table[i].app; i = (i + 1) & (IO_TABLE - 1))
        if (table[i].key == key)
            return table[i].app;
    return NULL;
}

/* Counters of the loop's own: single writer (base.h). */
#define io_count(field, n) cl_count(&(field), (n))

static inline uint32_t io_park_of(const struct io_kthread *k)
{
    return cl_load_relaxed(k->park);
}

/* All lines of k, in the arena. */
static inline const struct cl_arena_kthread *io_lines_of(const struct io_kthread *k)
{
    return cl_container_of(k->member.signals.shared, const struct cl_arena_kthread, signals);
}

/* As in cl_state_core.owner; NULL: nobody. */
static inline uint32_t io_owner_word(const struct io_kthread *k)
{
    return k ? k->member.slot + 1 : 0;
}

/* The old owner has not ceded. */
static inline bool io_in_the_way(const struct io_core *core)
{
    return core->from && io_park_of(core->from) == CL_KTHREAD_RUNNING;
}

/* The owner runs, or is on its way. One that sleeps in the kernel says so, and does not. */
static inline bool io_core_has_work(const struct io_core *core)
{
    return core->owner && (core->moving || (io_park_of(core->owner) == CL_KTHREAD_RUNNING && !core->owner->blocked));
}

static inline struct cl_policy_app *io_row_of(struct io_cores *c, const struct io_app *app)
{
    return &c->table[app->cores.row];
}

static inline bool io_wants_more(const struct io_app *app)
{
    return app->cores.demand > app->cores.held;
}

static inline uint64_t io_ns(const struct cl_io *io, uint64_t ticks)
{
    return ticks ? cl_max((uint64_t)cl_ticks_to_ns(io->clock, (int64_t)ticks), 1u) : 0;
}

/* Age of what waits since that stamp; 0: nothing does. */
static inline uint64_t io_age_ns(const struct io_loop *loop, uint64_t since, uint64_t now)
{
    return since ? io_ns(loop->io, cl_min(cl_max((int64_t)(now - since), 1), (int64_t)IO_MOST_AGE)) : 0;
}

/* An application has work: if it is another than the last one, they share the loop for a while (limits.h). */
static inline void io_active(struct io_loop *loop, const struct io_app *app)
{
    if (cl_unlikely(loop->active != app)) {
        loop->active = app;
        loop->shared_until = loop->stats.rounds + SHARED_ROUNDS;
    }
}

/* The application of that id, or NULL. By the controlling thread. */
static inline struct io_app *io_app_by_id(const struct cl_io *io, uint32_t id)
{
    struct io_app *a = io->apps;
    while (a && a->id != id)
        a = a->next;
    return a;
}

/* loop/command.c */
/* Put a command on its way to a loop; one that does not run carries it out at once. */
int io_tell_loop(struct cl_io *io, struct io_loop *loop, uint64_t kind, struct io_app *app, char *err);
/* Wait until the loops have carried out all commands, for wait_ms at most. */
int io_await_loops(struct cl_io *io, uint32_t wait_ms, char *err);
void io_commands(struct io_loop *loop);
bool io_commands_pending(const struct io_loop *loop);
/* steer.c: frames from uplinks and other loops. */
bool io_poll_uplinks(struct io_loop *loop);
bool io_poll_handovers(struct io_loop *loop);
/* Whether a frame asks for somebody else's MAC address. */
bool io_is_arp_question(const uint8_t *header, uint32_t len);
/* The local application that a frame asks for, or NULL. */
const struct io_app *io_arp_target(struct io_loop *loop, const uint8_t *header, uint32_t len);
/* Write the answer (42 bytes) to a request: target address is at `mac`. */
void io_arp_reply(uint8_t *reply, const uint8_t *request, uint64_t mac);
/* switch.c: frames from applications. */
bool io_poll_apps(struct io_loop *loop);
/* stamps.c: when frames that applications trace pass. */
/* The loop has taken so many descriptors of k that ask for it. */
void io_stamp_taken(struct io_loop *loop, struct io_kthread *k, uint32_t n);
/* The round has flushed the uplinks: tell whose frames are given on. */
void io_stamp_given(struct io_loop *loop);
/* The application goes. */
void io_stamp_forget(struct io_loop *loop, const struct io_app *app);
/* deliver.c: where frames go. */
/* Into this application's ring. */
void io_deliver(struct io_loop *loop, struct io_app *app, const struct io_frame *f);
/* members.c. To that one of a group that a frame for its address is for. */
void io_deliver_to_group(struct io_loop *loop, const struct io_group *group, const struct io_frame *f);
/* A member has sent from a buffer whose frame it was asked about. True: the same frame, and the next member has it. */
bool io_hand_on(struct io_loop *loop, struct io_app *app, uint32_t buffer, const struct io_frame *f);
/* To whoever has the address under which `found` was found. */
static inline void io_deliver_found(struct io_loop *loop, struct io_app *found, const struct io_frame *f)
{
    if (cl_unlikely(found->group != NULL))
        io_deliver_to_group(loop, found->group, f);
    else
        io_deliver(loop, found, f);
}
void io_deliver_all(struct io_loop *loop, const struct io_frame *f, const struct io_app *but);
/* Returns false if the frame was dropped (counted in out_*). own: the application whose share it uses, or NULL. */
bool io_to_uplink(struct io_loop *loop, unsigned uplink, const struct io_frame *f, struct io_app *own);
bool io_hand_over(struct io_loop *loop, unsigned to, const struct io_frame *f, unsigned kind, unsigned uplink);
void io_flush_uplinks(struct io_loop *loop);
/* wake.c */
void io_wake(struct io_loop *loop, bool idle);
void io_wake_loops(struct io_loop *loop);
/* idle.c */
void io_idle(struct io_loop *loop, bool busy);
int io_idle_init(struct io_loop *loop, char *err);
void io_idle_close(struct io_loop *loop);
int io_idle_watch(struct io_loop *loop, int fd, bool edge);
void io_idle_forget(struct io_loop *loop, int fd);
/* round.c */
bool io_round(struct io_loop *loop, uint64_t now);
void *io_loop_main(void *arg);

#endif
