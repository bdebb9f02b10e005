/* The control protocol between an application and an iokernel: a unix stream socket, fixed structs, one message a time.
 *
 *   client                               iokernel
 *   connect, HELLO            ->
 *                             <-         ACCEPT, with three descriptors (SCM_RIGHTS): arena, state, doorbell eventfd
 *                             <-    or   REFUSE: says why and what to do; then the iokernel closes
 *   KTHREADS                  ->         if ACCEPT says that cores are managed: who the kthreads are, once they exist
 *                             <-         KTHREADS_OK, or REFUSE as above
 *   STATE                     ->         a member of a group is ready, or drains (docs/groups.md)
 *                             <-         STATE_OK: frames that come from now on find it so; or REFUSE as above
 *   PROMISE                   ->         batch work with a deadline: ask for one, or look what became of it
 *                             <-         PROMISE_OK: what became of it by now; or REFUSE as above (docs/deadlines.md)
 *   (the socket stays open; its end, of either side, is the end of the registration)
 *
 *   connect, STATS            ->
 *                             <-         STATS_REPLY: header and a JSON text; any number of times on one connection
 *
 *   connect, POLICY           ->         have another policy decide who gets the cores; for root and the iokernel's
 *                                        user
 *                             <-         POLICY_OK, or REFUSE with what its trial found
 *   connect, AREA             ->         list, make, grow, delete or open a storage area (docs/storage.md)
 *                             <-         AREA_OK: header and a JSON text, when opening with a descriptor; or REFUSE.
 *                                        What was opened is the client's until the socket ends
 *
 *   connect, MOVES            ->         where cores are managed: what a loop has logged of their moves
 *                             <-         MOVES_OK, with entries (struct cl_io_move, iokernel.h); or REFUSE. Any number
 *                                        of times
 *
 *   connect, TRACE            ->         an application's trace segment (trace.h), and how it is to be traced from now
 *                                        on; for its own user, root and the iokernel's user
 *                             <-         TRACE_OK: header and a JSON text, with the segment to be read, if the
 *                                        iokernel may open it; or REFUSE. A connection is given one segment
 *
 * All fields are in the byte order of the machine: both ends run on it. Every message begins with cl_control_header; a
 * receiver checks magic, then version, then type and length, so that ends of different versions can tell each other so
 * (the header and the REFUSE message never change). Who may connect is decided by the socket file's mode and by the
 * peer credentials that the kernel gives (SO_PEERCRED).
 *
 * Here: the messages and the client. The server is iokernel/control/server.py; a server in C needs this header only.
 * Errors: -errno and one line in err (at least CL_CONTROL_ERR_BYTES). Calls block up to their timeout; not for hot
 * paths.
 *
 * Tests: tests/iokernel/control/test_server.py (client and server, versions, refusals, fuzzing). */
#ifndef CORELANE_RUNTIME_CONTROL_H
#define CORELANE_RUNTIME_CONTROL_H

#include <corelane/runtime/base.h>
#include <corelane/runtime/promise.h>
#include "shm.h"

// cffi: begin
#define CL_CONTROL_MAGIC 0x4c726f43 /* "CorL" */
#define CL_CONTROL_VERSION 4
#define CL_CONTROL_MAX_BYTES 1024     /* longest message a client sends */
#define CL_CONTROL_MAX_REPLY 16777216 /* longest STATS_REPLY and MOVES_OK */
#define CL_CONTROL_FDS 3              /* with ACCEPT: arena, state, doorbell */
#define CL_CONTROL_ERR_BYTES 256
#define CL_CONTROL_TEXT_BYTES 240
#define CL_CONTROL_NOTE_BYTES 320

#define CL_CONTROL_HELLO 1
#define CL_CONTROL_ACCEPT 2
#define CL_CONTROL_REFUSE 3
#define CL_CONTROL_STATS 4
#define CL_CONTROL_STATS_REPLY 5
#define CL_CONTROL_KTHREADS 6
#define CL_CONTROL_KTHREADS_OK 7 /* a header alone */
#define CL_CONTROL_POLICY 8
#define CL_CONTROL_POLICY_OK 9
#define CL_CONTROL_AREA 10
#define CL_CONTROL_AREA_OK 11
#define CL_CONTROL_MOVES 12
#define CL_CONTROL_MOVES_OK 13
#define CL_CONTROL_STATE 14
#define CL_CONTROL_STATE_OK 15
#define CL_CONTROL_TRACE 16
#define CL_CONTROL_TRACE_OK 17
#define CL_CONTROL_PROMISE 18
#define CL_CONTROL_PROMISE_OK 19

struct cl_control_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t bytes; /* of the whole message, this header included */
    uint32_t reserved;
};

/* "I am NAME; give me this much." 0 in a number: the iokernel's default. */
struct cl_control_hello {
    struct cl_control_header header;
    char name[32]; /* letters, digits, '-', '_', '.', ':'; zero-terminated and zero-filled */
    uint32_t n_kthreads;
    uint32_t rx_slots, tx_slots; /* powers of two */
    uint32_t n_rx, n_tx;         /* buffers */
    uint32_t buffer_bytes;
    uint32_t ipv4; /* host byte order; 0: derived from the name */
    /* What it wants of the cores, where they are managed. It gets of `guaranteed`, `maximum` and `weight` what the
     * iokernel's configuration allows; that wins over the others, too. */
    uint32_t kind;        /* CL_CONTROL_LATENCY, CL_CONTROL_BATCH; 0: latency */
    uint32_t guaranteed;  /* cores */
    uint32_t maximum;     /* cores; 0: as many as kthreads */
    uint32_t weight;      /* among equals; 0: 1 */
    uint32_t deadline_us; /* what its tail should stay under; 0: nothing asked */
    uint32_t quantum_us;  /* a uthread that ran for so long yields to others at its next probe; 0: never */
    uint32_t
        quantum_signal; /* 1: and it is sent the signal, for code without probes, where the configuration allows it */
    uint32_t state;     /* CL_MEMBER_...: one that attaches again may be ready, or drain */
    uint32_t member;    /* which one of its group it would like to be, + 1; 0: any */
};
#define CL_CONTROL_LATENCY 1
#define CL_CONTROL_BATCH 2
/* Of one that is batch work by somebody else's word and asked for none: lost beside what a job computes in it. */
#define CL_CONTROL_BATCH_QUANTUM_US 1000

/* The kthreads' thread ids, and the signal that asks one to cede (its handler is installed). */
struct cl_control_kthreads {
    struct cl_control_header header;
    uint32_t n;
    int32_t signal;
    int32_t tids[64];
};

struct cl_control_state {
    struct cl_control_header header;
    uint32_t state;  /* CL_MEMBER_READY, CL_MEMBER_DRAINING */
    uint32_t others; /* 1: and the other members drain from now on; they are told */
};

struct cl_control_state_ok {
    struct cl_control_header header;
    uint32_t others; /* how many other members were told to drain */
    uint32_t reserved;
    uint64_t delivered; /* frames put into its rings until now, since it attached: of new flows no more, if it drains */
};

/* Of the application that is registered on this connection. */
struct cl_control_promise {
    struct cl_control_header header;
    struct cl_promise ask;
};

struct cl_control_promise_ok {
    struct cl_control_header header;
    struct cl_promised answer;
};

struct cl_control_accept {
    struct cl_control_header header;
    uint32_t app;  /* id, unique in the life of this iokernel */
    uint32_t loop; /* that serves it: index into the state segment */
    struct cl_arena_layout layout;
    uint64_t generation;
    uint64_t state_bytes;
    uint8_t mac[6];
    uint8_t may_spin;           /* 0: more kthreads than cores, so a kthread must park rather than spin */
    uint8_t managed;            /* 1: its kthreads run only while they own a core; slots below */
    uint32_t ipv4, ipv4_prefix; /* host byte order; bits */
    uint32_t mtu;
    uint32_t gateway; /* next hop for what is outside of the subnet; 0: none */
    int32_t cpus[64]; /* where kthread k should run; -1: anywhere */
    uint32_t slot;    /* of kthread 0 in the state segment; kthread k has slot + k */
    uint32_t member;  /* which one of its group it is, + 1; 0: it is of none */
    char note[320];   /* what it wished for and does not get, and what would allow it: one line, zero-terminated */
};

struct cl_control_policy {
    struct cl_control_header header;
    char spec[240];   /* a built-in one's name, module:function or file.so:symbol; zero-terminated */
    char params[256]; /* its settings, "name=value" separated by blanks; zero-terminated */
};

struct cl_control_policy_ok {
    struct cl_control_header header;
    char text[240]; /* what decides now, one line, zero-terminated */
};

#define CL_CONTROL_AREA_LIST 1
#define CL_CONTROL_AREA_CREATE 2
#define CL_CONTROL_AREA_GROW 3
#define CL_CONTROL_AREA_DELETE 4
#define CL_CONTROL_AREA_OPEN 5

struct cl_control_area {
    struct cl_control_header header;
    uint32_t op; /* CL_CONTROL_AREA_* */
    uint32_t reserved;
    uint64_t bytes; /* create, grow: size */
    char name[64];  /* zero-terminated */
    char owner[32]; /* create: user, by name or id; empty: who asks. Zero-terminated */
};

#define CL_CONTROL_FROM_NOW UINT64_MAX

struct cl_control_moves {
    struct cl_control_header header;
    uint64_t next; /* number of the first entry wanted; CL_CONTROL_FROM_NOW: none of those that are there */
    uint32_t loop;
    uint32_t reserved;
};

/* Entries follow it. */
struct cl_control_moves_ok {
    struct cl_control_header header;
    uint64_t next; /* to be asked for next time */
    uint64_t lost; /* entries from the one wanted on that had been overwritten */
    uint64_t tsc;  /* cl_tsc() of the answer: the entries are from before */
    uint64_t hz;   /* of the stamps */
    uint32_t n, entry_bytes;
};

struct cl_control_trace {
    struct cl_control_header header;
    char name[32]; /* of the application; zero-terminated */
    uint32_t pid;  /* of several that have the name; 0: there is one */
    uint32_t how;  /* CL_RUNTIME_TRACE_...: trace it so from now on; 0: as it is */
};

struct cl_control_refuse {
    struct cl_control_header header;
    uint32_t code; /* an errno value that fits best */
    uint32_t reserved;
    char text[240]; /* one line, zero-terminated */
};

/* Connect. -ENOENT or -ECONNREFUSED: nobody listens there; -EACCES: not allowed; -ETIMEDOUT: it does not accept.
 * Returns a blocking socket, close-on-exec. */
CL_API int cl_control_connect(const char *path, int timeout_ms, char *err);
/* Say HELLO on a connected socket and read the answer. `hello` needs its name and wishes; the header is filled in.
 * On success fds holds the three descriptors, the caller's to close. Refused: -code of the refusal, err its text.
 * -EPROTO: the peer speaks another version, or no corelane at all. The socket stays the caller's in any case. */
CL_API int cl_control_attach(int fd, struct cl_control_hello *hello, struct cl_control_accept *accept, int *fds,
                             int timeout_ms, char *err);
/* Say who the kthreads are, on an attached socket whose ACCEPT says that cores are managed; the header is filled in.
 * Refused: -code, err its text. */
CL_API int cl_control_kthreads(int fd, struct cl_control_kthreads *kthreads, int timeout_ms, char *err);
/* Say that the application is ready, or drains, on an attached socket; the header is filled in. Returns how many others
 * were told to drain; *delivered: of struct cl_control_state_ok. Refused: -code, err its text. */
CL_API int cl_control_state(int fd, struct cl_control_state *state, uint64_t *delivered, int timeout_ms, char *err);
/* Ask for a deadline, or what became of it, on an attached socket; the header is filled in. Refused: -code, err its
 * text. */
CL_API int cl_control_promise(int fd, struct cl_control_promise *ask, struct cl_control_promise_ok *answer,
                              int timeout_ms, char *err);
/* Ask for statistics. Returns the length of the zero-terminated JSON text in *json (free() it: cl_control_free). */
CL_API int cl_control_stats(int fd, char **json, int timeout_ms, char *err);
CL_API void cl_control_free(char *json);
/* Have another policy decide. It is loaded and tried first, which takes seconds if it must be compiled. text
 * (CL_CONTROL_TEXT_BYTES): what decides now. Refused: -code of the refusal, err its text; the old one goes on. */
CL_API int cl_control_policy(int fd, const char *spec, const char *params, char *text, int timeout_ms, char *err);
/* Ask about storage areas; the header is filled in. Returns the length of the zero-terminated JSON text in *json
 * (cl_control_free); *area is the descriptor when opening, the caller's to close, else -1. Making an area takes as long
 * as writing it. Refused: -code of the refusal, err its text. */
CL_API int cl_control_area(int fd, struct cl_control_area *ask, char **json, int *area, int timeout_ms, char *err);
/* Ask for entries of a loop's log of moves; the header is filled in. The *entries are the caller's (cl_control_free).
 * Refused: -code of the refusal, err its text. */
CL_API int cl_control_moves(int fd, struct cl_control_moves *ask, struct cl_control_moves_ok *answer, char **entries,
                            int timeout_ms, char *err);
/* Ask for an application's trace; the header is filled in. Returns the length of the zero-terminated JSON text in *json
 * (cl_control_free); *segment is the descriptor, read-only, the caller's to close, or -1: the text says why. Refused:
 * -code, err its text. */
CL_API int cl_control_trace(int fd, struct cl_control_trace *ask, char **json, int *segment, int timeout_ms, char *err);
CL_API void cl_control_close(int fd);
// cffi: end

_Static_assert(sizeof(struct cl_control_header) == 16, "never changes");
_Static_assert(sizeof(struct cl_control_hello) == 112, "no hidden padding");
_Static_assert(sizeof(struct cl_control_refuse) == 264, "never changes");
_Static_assert(sizeof(struct cl_arena_layout) == 72, "part of ACCEPT");
_Static_assert(sizeof(struct cl_control_accept) == 720, "no hidden padding");
_Static_assert(sizeof(((struct cl_control_accept *)0)->note) == CL_CONTROL_NOTE_BYTES, "note");
_Static_assert(sizeof(struct cl_control_kthreads) == 280, "no hidden padding");
_Static_assert(sizeof(struct cl_control_state) == 24 && sizeof(struct cl_control_state_ok) == 32, "no hidden padding");
_Static_assert(sizeof(struct cl_control_promise) == 72 && sizeof(struct cl_control_promise_ok) == 280,
               "no hidden padding");
_Static_assert(sizeof(struct cl_control_policy) == 512 && sizeof(struct cl_control_policy) <= CL_CONTROL_MAX_BYTES,
               "no hidden padding");
_Static_assert(sizeof(struct cl_control_area) == 128, "no hidden padding");
_Static_assert(sizeof(struct cl_control_policy_ok) == 256, "no hidden padding");
_Static_assert(sizeof(struct cl_control_moves) == 32 && sizeof(struct cl_control_moves_ok) == 56, "no hidden padding");
_Static_assert(sizeof(struct cl_control_trace) == 56, "no hidden padding");
_Static_assert(sizeof(((struct cl_control_accept *)0)->cpus) == 4 * CL_SHM_MAX_KTHREADS, "one CPU a kthread");
_Static_assert(sizeof(((struct cl_control_hello *)0)->name) == CL_SHM_NAME_BYTES, "name");

#endif
