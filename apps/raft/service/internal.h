/* What the files of the service share. They call in one direction: serve.c, kv.c, stream.c, admin.c, poll.c, resp.c and
 * traced.c. */
#ifndef CORELANE_APPS_RAFT_SERVICE_INTERNAL_H
#define CORELANE_APPS_RAFT_SERVICE_INTERNAL_H

#include <corelane/libos/complete.h>
#include <corelane/libos/timer.h>
#include "../transport/channel.h"
#include "../node/in_call.h"
#include "../../kv/stream/front.h"
#include "../node/kv_machine.h"
#include "../node/resp_machine.h"
#include "../transport/link.h"
#include "../node/frame.h"
#include "serve.h"
#include <pthread.h>

/* Kinds of clients: the first word of a token. */
#define SERVE_FRAME_CLIENT 1
#define SERVE_KV_CLIENT 2
#define SERVE_STREAM_CLIENT 3
#define SERVE_RESP_CLIENT 4

#define SERVE_STATUS_BYTES 16384 /* of 16 nodes, with the longest numbers */

struct serve_resp;

/* machine.c: a state machine that is not ours, and what a kthread says that it does in each call. */
enum { SERVE_APPLY, SERVE_QUERY, SERVE_SAVE, SERVE_LOAD, SERVE_CHECK, SERVE_CALLS };
struct serve_machine {
    struct cl_raft_machine real;
    struct cl_doing doing[SERVE_CALLS];
};

struct cl_raft_service {
    struct cl_raft_serve_config config;
    struct serve_machine machine; /* config.node.machine calls it, unless that is the key-value store */
    struct cl_raft_serve_counters count;
    struct cl_runtime *rt;
    const struct cl_clock *clock; /* of its NIC */
    struct cl_raft_node *node;
    struct raft_link link;       /* clients */
    struct raft_channel channel; /* nodes, in the order of config.peers */
    struct raft_kv kv;
    struct cl_kv_front *front; /* connections of kv_tcp_port; NULL: none */
    struct kv_elsewhere elsewhere;
    struct raft_resp values; /* in the store's place */
    struct serve_resp *resp; /* the port of RESP; NULL: none */
    /* What has something for the node before each poll: true if the timer is to come at once. NULL: nobody has. */
    bool (*give)(struct cl_raft_service *s);
    struct {
        uint32_t port, kv, kv_tcp, resp;
    } traced; /* numbers of the commands that come by each port in the runtime's trace; 0: none, or it does not trace */
    struct cl_udp_socket *out;       /* to peers and frame clients */
    struct cl_udp_socket *kv_socket; /* of kv_port; known once a request has come. Answers leave from it */
    struct cl_timer timer;
    uint64_t now_ns;    /* when what is being done began: a burst, a timer, a poll of the disk */
    uint8_t disk_flies; /* the scheduler has been told that the log has something in flight */
    struct cl_raft_in_call in_call;
    struct cl_completions completions; /* the scheduler's until it stops, which it does for good */
    uint64_t hold_until_ns;            /* admin.c: a snapshot is held; 0: none is */
    uint8_t *frame;                    /* an answer to a frame client, being made */
    uint32_t frame_room;

    /* Asked from other threads, done on the kthread. */
    pthread_mutex_t lock;
    struct cl_raft_members asked;
    int asked_result; /* -EINPROGRESS: to be done */
    struct cl_raft_status status;
    uint64_t led_ns; /* since when, as of that status; 0: it does not lead */
};

/* machine.c. `machine` calls what it called before, by way of m. */
void serve_machine_wrap(struct serve_machine *m, struct cl_raft_machine *machine);

/* traced.c */
/* Name what is traced, and have the node note stages. Before the node is made. */
void serve_trace(struct cl_raft_service *s);
/* A command or query is answered, that came at since_ns. traced: one of the numbers above. leaves: by a datagram that
 * is sent next. Inside env.answer. */
void serve_traced(struct cl_raft_service *s, uint32_t traced, uint64_t since_ns, bool leaves);
/* env.passed */
void serve_passed(void *arg, uint64_t since_ns);

/* poll.c */
/* The clock of the runtime's NIC, as its scheduler has it: also when that is gone. arg: the service. */
uint64_t serve_now(void *arg);
/* Read the clock: first of all in whatever the scheduler calls. */
void serve_begin(struct cl_raft_service *s);
/* Do all that is to be done, and see to it that this is called again in time. On the kthread. */
void serve_poll(struct cl_raft_service *s);

/* Whether the log has something in flight that this node waits for. */
bool serve_disk_busy(const struct cl_raft_service *s);
/* Have the scheduler poll the log's device, if there is a log. -errno with a reason in err. */
int serve_watch_disk(struct cl_raft_service *s, char err[256]);

/* admin.c */
/* Do what an operator's frame asks; `out` is the answer. Returns its bytes. */
uint32_t serve_admin(struct cl_raft_service *s, const struct node_frame *f, char out[SERVE_STATUS_BYTES]);
/* Now and then: lets go of what nobody asks for any more. */
void serve_admin_tick(struct cl_raft_service *s);
/* Lines of memcached's `stats` about the group; returns their bytes. */
uint32_t serve_admin_stats(struct cl_raft_service *svc, char *out, uint32_t room);

/* stream.c */
/* Serve the store on kv_tcp_port. -errno with a reason in err. */
int serve_stream_bind(struct cl_raft_service *s, char err[256]);
void serve_stream_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                         uint32_t bytes);

/* resp.c */
/* Serve the values on config.resp.port. -errno with a reason in err. */
int serve_resp_bind(struct cl_raft_service *s, char err[256]);
void serve_resp_delete(struct serve_resp *f);
/* Take up leadership, or let go of it, if it has changed: from the timer. True: there is more to be done at once. */
bool serve_resp_turn(struct cl_raft_service *s);
void serve_resp_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                       uint32_t bytes);
/* Its part of the counters, resp_...; nothing without a port. */
void serve_resp_counters(const struct cl_raft_service *s, struct cl_raft_serve_counters *out);

/* kv.c */
/* What a client is told whose command ended with that status; `read`: it would have changed nothing. */
const char *serve_kv_error(int status, bool read);
void serve_kv_burst(struct cl_udp_req *reqs, unsigned n, void *arg);
void serve_kv_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                     uint32_t bytes);

#endif
