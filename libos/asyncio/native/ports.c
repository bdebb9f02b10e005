/* Listening and connecting. See native.h. */
#include "native.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct port *port_of(struct poller *p, uint16_t number)
{
    struct port *port = p->ports;
    while (port && port->number != number)
        port = port->next;
    if (port || !(port = calloc(1, sizeof *port)))
        return port;
    port->poller = p;
    port->number = number;
    port->next = p->ports;
    return p->ports = port;
}

/* listen(address as a number, port, backlog, callable): the callable is called with each endpoint that comes. */
PyObject *poller_listen(PyObject *self, PyObject *args)
{
    struct poller *p = (struct poller *)self;
    PyObject *address, *fn;
    unsigned number, backlog;
    if (!PyArg_ParseTuple(args, "OIIO", &address, &number, &backlog, &fn))
        return NULL;
    struct port *port = port_of(p, (uint16_t)number);
    if (!port)
        return PyErr_NoMemory();
    if (!port->listeners && !(port->listeners = PyDict_New()))
        return NULL;
    int has = PyDict_Contains(port->listeners, address);
    if (has)
        return has < 0 ? NULL : poller_fail(EADDRINUSE, "another listener of this loop has this address and port");
    if (PyDict_SetItem(port->listeners, address, fn))
        return NULL;
    int rc = port->n ? 0 : cl_runtime_listen_tcp(p->runtime, (uint16_t)number, backlog, &port_events, port);
    if (rc) {
        if (PyDict_DelItem(port->listeners, address))
            return NULL;
        return poller_fail(-rc, "listen on a port of the runtime");
    }
    port->n++;
    Py_RETURN_NONE;
}

/* unlisten(address, port) */
PyObject *poller_unlisten(PyObject *self, PyObject *args)
{
    struct poller *p = (struct poller *)self;
    PyObject *address;
    unsigned number;
    if (!PyArg_ParseTuple(args, "OI", &address, &number))
        return NULL;
    struct port *port = port_of(p, (uint16_t)number);
    if (!port)
        return PyErr_NoMemory();
    if (!port->listeners) {
        PyErr_SetObject(PyExc_KeyError, address);
        return NULL;
    }
    if (PyDict_DelItem(port->listeners, address))
        return NULL;
    if (--port->n == 0) {
        Py_CLEAR(port->listeners);
        if (!p->dead)
            (void)cl_runtime_unlisten_tcp(p->runtime, port->number);
    }
    Py_RETURN_NONE;
}

void ports_close(struct poller *p)
{
    for (struct port *port = p->ports, *next; port; port = next) {
        next = port->next;
        if (port->n && !p->dead)
            (void)cl_runtime_unlisten_tcp(p->runtime, port->number);
        port->n = 0;
        Py_CLEAR(port->listeners);
        cl_store_release(&port->poller, NULL); /* half-open connections still point to it: it stays */
    }
    p->ports = NULL;
}

/* As if the port were closed. */
static void turn_away(struct endpoint *e)
{
    e->reset = e->closing = true;
    put_served(e, WANTS_SEND);
}

/* The listener has raised what is set, as a program's factory of tasks may: one connection less, and the loop goes on.
 * -1: it is for whoever runs the loop. */
static int not_taken(struct endpoint *e, PyObject *listener)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    PyErr_WriteUnraisable(listener);
    turn_away(e);
    return 0;
}

int ports_accept(struct endpoint *e)
{
    struct port *port = e->port;
    PyObject *address = PyLong_FromUnsignedLong(e->own.ipv4), *any = PyLong_FromLong(0), *fn = NULL;
    if (address && any && port->listeners) {
        fn = PyDict_GetItemWithError(port->listeners, address);
        if (!fn && !PyErr_Occurred())
            fn = PyDict_GetItemWithError(port->listeners, any);
        Py_XINCREF(fn);
    }
    Py_XDECREF(address);
    Py_XDECREF(any);
    if (!fn) {
        if (PyErr_Occurred())
            return -1;
        turn_away(e); /* nobody listens there */
        return 0;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(fn, (PyObject *)e, NULL);
    int rc = done ? 0 : not_taken(e, fn);
    Py_DECREF(fn);
    Py_XDECREF(done);
    return rc;
}

static void made(struct cl_tcp_conn *c, void *arg)
{
    struct endpoint *e = arg;
    e->conn = c;
    cl_tcp_addresses(c, &e->own, &e->peer);
}

/* On the kthread. The endpoint has a reference for this and for its connection. */
static void connect_now(void *arg)
{
    struct endpoint *e = arg;
    struct cl_tcp_addr from = e->own, to = e->peer;
    int rc = e->closing ? -ECANCELED : cl_runtime_open_tcp(e->poller->runtime, &from, &to, &endpoint_events, e, made);
    if (rc == 0)
        return;
    e->error = -rc;
    put_ready(e, TOLD_OVER);
    endpoint_lost_one(e);
    Py_DECREF((PyObject *)e);
}

/* connect(own address, own port, address, port, future) -> the endpoint. The future gets None when it is open, or an
 * OSError. */
PyObject *poller_connect(PyObject *self, PyObject *args)
{
    struct poller *p = (struct poller *)self;
    struct cl_tcp_addr from = {0}, to = {0};
    PyObject *future;
    if (!PyArg_ParseTuple(args, "IHIHO", &from.ipv4, &from.port, &to.ipv4, &to.port, &future))
        return NULL;
    struct endpoint *e = endpoint_new(p);
    if (!e)
        return NULL;
    e->own = from;
    e->peer = to;
    e->opened = Py_NewRef(future);
    Py_INCREF((PyObject *)e);
    int rc = post(p, connect_now, e, false);
    if (rc == 0)
        return (PyObject *)e;
    endpoint_lost_one(e);
    Py_DECREF((PyObject *)e);
    Py_DECREF((PyObject *)e);
    return poller_fail(-rc, cl_adopt_error(rc));
}

/* outgoing(): how many connections that were opened from here there are. */
PyObject *poller_outgoing(PyObject *self, PyObject *unused)
{
    size_t n = 0;
    (void)unused;
    for (const struct endpoint *e = ((struct poller *)self)->all; e; e = e->after)
        n += e->conn && !e->port;
    return PyLong_FromSize_t(n);
}
