/* UDP sockets. See native.h.
 *
 * The network tells of what comes inside of a turn, under a lock of the socket: that only puts the socket on a stack of
 * those that something has come for. `deliver` takes them off it, and calls the method `told` of each. A socket that is
 * open has a reference to itself; who closes it while it is on the stack leaves that to `deliver`. */
#include "native.h"

#include <errno.h>
#include <string.h>

#define datagrams_of(o) ((struct datagrams *)(o))

/* Any thread that turns the kthread. */
static void put_came(struct datagrams *d)
{
    struct poller *p = d->poller;
    if (cl_load_relaxed(&d->came) || cl_exchange(&d->came, 1u))
        return;
    struct datagrams *head = cl_load_relaxed(&p->came);
    do
        d->next_came = head;
    while (!__atomic_compare_exchange_n(&p->came, &head, d, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)); /* next_came */
}

static void on_came(void *arg)
{
    put_came(arg);
}

int datagrams_deliver(struct poller *p)
{
    struct datagrams *stack = cl_load_relaxed(&p->came) ? cl_exchange(&p->came, NULL) : NULL, *all = NULL;
    for (struct datagrams *next; stack; stack = next) { /* in the order in which they were told */
        next = stack->next_came;
        stack->next_came = all;
        all = stack;
    }
    int rc = 0;
    for (struct datagrams *next; all; all = next) {
        next = all->next_came;
        (void)cl_exchange(&all->came, 0u); /* before it is looked at: what comes from here on is told anew */
        if (!all->udp) {
            Py_DECREF((PyObject *)all);
        } else if (rc) {
            put_came(all); /* the next time */
        } else {
            PyObject *keep = Py_NewRef((PyObject *)all);
            PyObject *done = PyObject_CallMethodObjArgs(keep, names.told, NULL);
            rc = done ? 0 : -1;
            Py_XDECREF(done);
            Py_DECREF(keep);
        }
    }
    return rc;
}

/* Calls, on the kthread. */

struct call {
    struct datagrams *d;
    PyObject *data;
    struct cl_udp_addr addr;
    int64_t rc;
};

static void close_now(void *arg)
{
    (void)cl_udp_close(arg);
}

/* What comes first: bytes of its own length. */
static void receive_now(void *arg)
{
    struct call *c = arg;
    struct cl_udp_socket *udp = c->d->udp;
    int error = cl_udp_take_error(udp);
    c->rc = error ? -error : cl_udp_peek(udp, NULL, 0, NULL);
    if (c->rc < 0)
        return;
    c->data = PyBytes_FromStringAndSize(NULL, c->rc);
    if (c->data)
        c->rc = cl_udp_recvfrom(udp, PyBytes_AsString(c->data), c->rc, &c->addr, 0);
}

static void send_now(void *arg)
{
    struct call *c = arg;
    const char *data = PyBytes_AsString(c->data);
    int64_t len = PyBytes_Size(c->data);
    c->rc = c->addr.port ? cl_udp_sendto(c->d->udp, data, len, &c->addr) : cl_udp_send(c->d->udp, data, len);
}

/* -1 with an exception. */
static int call(void (*fn)(void *arg), struct call *c)
{
    int rc = c->d->udp ? on_kthread(c->d->poller, fn, c, true) : -EBADF;
    if (rc == 0 && c->rc < 0)
        rc = (int)c->rc;
    if (rc == 0)
        return 0;
    (void)poller_fail(-rc, strerror(-rc));
    return -1;
}

static PyObject *receive(PyObject *self, PyObject *unused)
{
    struct call c = {.d = datagrams_of(self)};
    (void)unused;
    int rc = call(receive_now, &c);
    if (rc || !c.data) {
        Py_XDECREF(c.data);
        return NULL;
    }
    return Py_BuildValue("(N(Ii))", c.data, c.addr.ipv4, c.addr.port);
}

static PyObject *send(PyObject *self, PyObject *args)
{
    struct call c = {.d = datagrams_of(self)};
    if (!PyArg_ParseTuple(args, "SIH", &c.data, &c.addr.ipv4, &c.addr.port) || call(send_now, &c))
        return NULL;
    return PyLong_FromLongLong(c.rc);
}

static PyObject *connect(PyObject *self, PyObject *args)
{
    struct datagrams *d = datagrams_of(self);
    struct cl_udp_addr to = {0};
    if (!PyArg_ParseTuple(args, "IH", &to.ipv4, &to.port))
        return NULL;
    int rc = !d->udp ? -EBADF : d->poller->dead ? -ESHUTDOWN : cl_udp_connect(d->udp, to.port ? &to : NULL);
    if (rc)
        return poller_fail(-rc, strerror(-rc));
    Py_RETURN_NONE;
}

static bool is_readable(const struct datagrams *d)
{
    return d->udp && !d->poller->dead && cl_udp_socket_ready(d->udp);
}

static PyObject *look(PyObject *self, PyObject *unused)
{
    struct datagrams *d = datagrams_of(self);
    (void)unused;
    if (is_readable(d))
        put_came(d);
    Py_RETURN_NONE;
}

/* The caller has a reference. */
void datagrams_close(struct datagrams *d)
{
    struct cl_udp_socket *udp = d->udp;
    struct poller *p = d->poller;
    if (!udp)
        return;
    if (!p->dead) /* else it is the runtime's, which may be gone, and nothing comes any more */
        cl_udp_watch(udp, NULL, NULL);
    d->udp = NULL;
    *d->at = d->after;
    if (d->after)
        d->after->at = d->at;
    (void)post(p, close_now, udp, true); /* fails when the runtime stops: it closes what is open */
    if (!cl_load_acquire(&d->came))
        Py_DECREF((PyObject *)d);
}

static PyObject *close_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    datagrams_close(datagrams_of(self));
    Py_RETURN_NONE;
}

/* Datagrams(poller, port, shared) */
static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    PyObject *poller;
    unsigned short port;
    int shared;
    struct cl_udp_socket *udp;
    if (kwds && PyDict_Size(kwds))
        return PyErr_Format(PyExc_TypeError, "Datagrams takes no keywords");
    if (!PyArg_ParseTuple(args, "OHp", &poller, &port, &shared))
        return NULL;
    struct poller *p = (struct poller *)poller;
    int rc = (shared ? cl_udp_open_shared : cl_udp_open)(p->runtime, port, 0, &udp);
    if (rc)
        return poller_fail(-rc, "open a UDP socket of the runtime");
    struct datagrams *d = (struct datagrams *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!d) {
        (void)post(p, close_now, udp, false);
        return NULL;
    }
    d->poller = (struct poller *)Py_NewRef(poller);
    d->udp = udp;
    d->port = cl_udp_port(udp);
    d->after = p->sockets;
    d->at = &p->sockets;
    if (p->sockets)
        p->sockets->at = &d->after;
    p->sockets = d;
    Py_INCREF((PyObject *)d);
    cl_udp_watch(udp, on_came, d);
    return (PyObject *)d;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(datagrams_of(self)->poller);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_port(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(datagrams_of(self)->port);
}

static PyObject *get_readable(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(is_readable(datagrams_of(self)));
}

static PyObject *get_open(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(datagrams_of(self)->udp != NULL);
}

static PyMethodDef methods[] = {
    {"receive", receive, METH_NOARGS,
     "The next datagram: (bytes, (address as a number, port)). Raises OSError: EAGAIN."},
    {"send_to", send, METH_VARARGS,
     "send_to(bytes, address, port): port 0: to whom it is connected. How many bytes. Raises OSError."},
    {"connect_to", connect, METH_VARARGS, "connect_to(address, port); port 0: to nobody. Raises OSError."},
    {"look", look, METH_NOARGS, "Have `told` called if something waits."},
    {"end", close_method, METH_NOARGS, "Close it. May be called twice."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"port", get_port, NULL, "Its own port.", NULL},
                               {"readable", get_readable, NULL, "Whether `receive` has something.", NULL},
                               {"open", get_open, NULL, "Whether it is not closed.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "Datagrams(poller, port, shared): a UDP socket, whose method `told` is called."},
    {0, NULL}};
PyType_Spec datagrams_spec = {.name = "corelane.libos._asyncio.Datagrams",
                              .basicsize = sizeof(struct datagrams),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                              .slots = slots};
