/* See window.h. */
#include "window.h"

void cl_tcp_window_opened(struct cl_tcp_conn *c)
{
    if (c->state < CL_TCP_ESTABLISHED || (c->flags & CL_TCP_FIN_CAME))
        return;
    uint32_t promised = c->rcv_edge - c->rcv_nxt;
    /* Else it would say what is known already; with leases on both sides each to the other, for ever. */
    if (cl_tcp_receive_room(c) >= promised + cl_tcp_window_worth(c) && !cl_tcp_is_pressed(c))
        c->flags |= CL_TCP_ACK_NOW;
}
