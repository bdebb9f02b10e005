/* The event form: what happens to a connection calls its user. Part of the contract with users (conn.h).
 *
 * Callbacks run one at a time for a connection, on whatever kthread works on it, and in this order: `opened`; then
 * `data`, `writable`, `eof` as it comes; `ended` once and last. They may call everything of conn.h that is the user's.
 * NULL: not wanted. A listener's connections have the listener's events, and its arg until `opened` sets another. */
#ifndef CORELANE_LIBOS_NET_TCP_EVENTS_H
#define CORELANE_LIBOS_NET_TCP_EVENTS_H

#include <corelane/runtime/base.h>

// cffi: begin
struct cl_tcp_conn;

struct cl_tcp_events {
    /* It is established. */
    void (*opened)(struct cl_tcp_conn *c, void *arg);
    /* The next bytes. Returns how many it took, 0..len. They lie in the frame or in a chunk, and are gone when it
     * returns. What it does not take waits, and is offered again when more comes or the user calls cl_tcp_resume; the
     * peer is held back when so much waits as may. NULL: all waits, for cl_tcp_read. */
    int64_t (*data)(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg);
    /* There is room again since cl_tcp_write took less than it was given. */
    void (*writable)(struct cl_tcp_conn *c, void *arg);
    /* The peer has sent its FIN, and all before it was taken. */
    void (*eof)(struct cl_tcp_conn *c, void *arg);
    /* It is over: 0, all that was written is acknowledged and all that came was taken or refused; else the errno: what
     * was written last may be lost. The connection is no longer the user's. Also of one that never opened (connect). */
    void (*ended)(struct cl_tcp_conn *c, int error, void *arg);
};
// cffi: end

#endif
