/* Endpoints: what connections tell, and what is sent. See native.h. */
#include "native.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 4 /* pieces of output that there is room for at first */
#define ROOM_KEPT 64 /* and what stays when all has gone */

/* Bytes. */

/* Have room for more of what comes, behind what has: the first piece has its own size, all that follow of one burst
 * find room that doubles. */
static bool grow(struct endpoint *e, Py_ssize_t len)
{
    Py_ssize_t room = e->data ? PyBytes_Size(e->data) : 0, needed = e->got + len;
    if (needed <= room)
        return true;
    PyObject *larger = PyBytes_FromStringAndSize(NULL, cl_max(needed, 2 * room));
    if (!larger)
        return false;
    if (e->got)
        memcpy(PyBytes_AsString(larger), PyBytes_AsString(e->data), (size_t)e->got);
    Py_XDECREF(e->data);
    e->data = larger;
    return true;
}

PyObject *endpoint_take_data(struct endpoint *e)
{
    PyObject *data = e->data;
    Py_ssize_t len = e->got, room = PyBytes_Size(data);
    e->data = NULL;
    e->got = 0;
    if (len == room)
        return data;
    if (len < room / 2) { /* who keeps it is not to keep so much for nothing */
        PyObject *copy = PyBytes_FromStringAndSize(PyBytes_AsString(data), len);
        Py_DECREF(data);
        return copy;
    }
    /* Nobody else has it, and nobody has asked for its hash. */
    PyBytes_AsString(data)[len] = 0;
    Py_SET_SIZE((PyVarObject *)data, len);
    return data;
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct endpoint *e = arg;
    PyGILState_STATE state;
    (void)c;
    if (e->paused || e->closing || e->left)
        return 0;
    bool taken = lock(e->poller, &state);
    if (e->buffers) {
        put_ready(e, TOLD_WAITING);
        len = 0;
    } else if (!grow(e, len)) {
        PyErr_Clear(); /* it is offered again */
        len = 0;
    } else {
        memcpy(PyBytes_AsString(e->data) + e->got, data, (size_t)len);
        e->got += len;
        put_ready(e, TOLD_DATA);
    }
    unlock(taken, state);
    return len;
}

struct reading {
    struct endpoint *e;
    void *data;
    Py_ssize_t room, n;
};

static void read_now(struct cl_tcp_conn *c, void *arg)
{
    struct reading *r = arg;
    r->n = cl_tcp_read(c, r->data, r->room);
}

static void read_some(void *arg)
{
    struct reading *r = arg;
    if (!r->e->conn)
        r->n = 0;
    else
        (void)cl_tcp_call(r->e->conn, read_now, r);
}

Py_ssize_t endpoint_read(struct endpoint *e, void *data, Py_ssize_t room)
{
    struct reading r = {e, data, room, -1};
    (void)on_kthread(e->poller, read_some, &r, true);
    return r.n;
}

/* Output. */

int endpoint_send(struct endpoint *e, PyObject *bytes)
{
    if (e->first + e->n_out == e->room) {
        if (e->first > e->room / 2) {
            memmove(e->out, e->out + e->first, e->n_out * sizeof(PyObject *));
        } else {
            uint32_t room = cl_max(2 * e->room, (uint32_t)ROOM_FIRST);
            PyObject **out = malloc(room * sizeof *out);
            if (!out) {
                PyErr_NoMemory();
                return -1;
            }
            if (e->n_out)
                memcpy(out, e->out + e->first, e->n_out * sizeof *out);
            free(e->out);
            e->out = out;
            e->room = room;
        }
        e->first = 0;
    }
    e->out[e->first + e->n_out++] = Py_NewRef(bytes);
    e->out_bytes += PyBytes_Size(bytes);
    put_served(e, WANTS_SEND);
    return 0;
}

static void drop_piece(struct endpoint *e)
{
    Py_DECREF(e->out[e->first]);
    e->done = 0;
    e->first = --e->n_out ? e->first + 1 : 0;
    if (e->n_out == 0 && e->room > ROOM_KEPT) { /* a peer that was slow once is idle for long */
        free(e->out);
        e->out = NULL;
        e->room = 0;
    }
}

void endpoint_drop_output(struct endpoint *e)
{
    while (e->n_out)
        drop_piece(e);
    e->out_bytes = 0;
}

void endpoint_lost_one(struct endpoint *e)
{
    if (e->conn || e->transport || !e->at)
        return;
    *e->at = e->after;
    if (e->after)
        e->after->at = e->at;
    e->at = NULL;
}

/* Not of the connection's any more. Its reference is the list's: this may be a uthread, on which endpoints do not
 * end. */
static void let_go(struct endpoint *e, unsigned told)
{
    e->conn = NULL;
    endpoint_lost_one(e);
    put_ready(e, told);
    Py_DECREF((PyObject *)e);
}

/* In a turn: the connection goes on alone, or is reset. */
static void leave(struct endpoint *e, struct cl_tcp_conn *c)
{
    if (e->reset)
        cl_tcp_abort(c);
    else
        cl_tcp_close(c);
    if (!e->conn) /* and that was its end */
        return;
    cl_tcp_set_user(c, NULL, NULL);
    let_go(e, TOLD_SENT);
}

/* Whether its transport is to tell that there is room: who hears that may write more. */
static bool looks_at_room(struct endpoint *e)
{
    const struct transport *t = e->transport;
    bool told = t && t->writing_paused && e->out_bytes <= t->low_water;
    if (told)
        put_ready(e, TOLD_ROOM);
    return told && !t->lost;
}

static void send_out(struct endpoint *e, struct cl_tcp_conn *c)
{
    while (e->n_out && e->conn) {
        PyObject *piece = e->out[e->first];
        int64_t left = PyBytes_Size(piece) - e->done;
        int64_t n = cl_tcp_write(c, PyBytes_AsString(piece) + e->done, left);
        if (n < 0) { /* it is over, and `ended` says why */
            endpoint_drop_output(e);
            break;
        }
        e->out_bytes -= n;
        e->done += n;
        if (n < left)
            break; /* on_writable tells of more room */
        drop_piece(e);
    }
    bool more = looks_at_room(e);
    if (e->n_out || !e->conn || (e->closing && more)) /* `deliver` has it served once more */
        return;
    if (e->closing) {
        leave(e, c);
    } else {
        if (e->shuts)
            cl_tcp_shutdown(c);
        e->shuts = false;
        if (e->transport && has_waiter(e->transport))
            put_ready(e, TOLD_SENT);
    }
}

void endpoint_serve(struct cl_tcp_conn *c, void *arg)
{
    struct endpoint *e = arg;
    unsigned wants = e->wants;
    e->wants = 0;
    if (wants & WANTS_SEND)
        send_out(e, c);
    if ((wants & WANTS_OFFER) && e->conn)
        cl_tcp_resume(c);
}

static void serve_here(void *arg)
{
    struct endpoint *e = arg;
    if (e->conn && !cl_tcp_call(e->conn, endpoint_serve, e))
        (void)cl_tcp_wake(e->conn);
}

void endpoint_serve_now(struct endpoint *e)
{
    if (on_kthread(e->poller, serve_here, e, false))
        put_served(e, 0); /* with all others, then */
}

static void on_woken(struct cl_tcp_conn *c, void *arg)
{
    struct endpoint *e = arg;
    PyGILState_STATE state;
    if (e->left)
        return;
    bool taken = lock(e->poller, &state);
    endpoint_serve(c, e);
    unlock(taken, state);
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    struct endpoint *e = arg;
    PyGILState_STATE state;
    if (e->left)
        return;
    bool taken = lock(e->poller, &state);
    send_out(e, c);
    unlock(taken, state);
}

/* The beginning and the end. */

static void tell(struct endpoint *e, unsigned told)
{
    PyGILState_STATE state;
    if (e->left)
        return;
    bool taken = lock(e->poller, &state);
    put_ready(e, told);
    unlock(taken, state);
}

static void begin(struct endpoint *e, struct cl_tcp_conn *c)
{
    cl_tcp_no_delay(c, true);
    cl_tcp_answers_later(c);
    cl_tcp_addresses(c, &e->own, &e->peer);
    e->has_opened = true;
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    begin(arg, c);
    tell(arg, TOLD_OPENED);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)c;
    tell(arg, TOLD_EOF);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct endpoint *e = arg;
    PyGILState_STATE state;
    (void)c;
    bool taken = lock(e->poller, &state);
    e->error = error;
    endpoint_drop_output(e);
    if (e->left) {
        e->conn = NULL;
        Py_DECREF(
            (PyObject *)e); /* nobody has had an interest in it since its loop was closed: it has nothing of Python's */
    } else {
        let_go(e, error ? TOLD_OVER : e->closing ? TOLD_SENT : 0);
    }
    unlock(taken, state);
}

const struct cl_tcp_events endpoint_events = {
    .opened = on_opened, .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended, .woken = on_woken};

struct endpoint *endpoint_new(struct poller *p)
{
    PyTypeObject *type = (PyTypeObject *)p->endpoint_type;
    struct endpoint *e = (struct endpoint *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!e)
        return NULL;
    e->poller = (struct poller *)Py_NewRef((PyObject *)p);
    e->paused = true;
    e->after = p->all;
    e->at = &p->all;
    if (p->all)
        p->all->at = &e->after;
    p->all = e;
    return e;
}

/* At a port of the runtime's somebody has connected. */
static void on_accepted(struct cl_tcp_conn *c, void *arg)
{
    struct port *port = arg;
    PyGILState_STATE state;
    struct poller *p = cl_load_acquire(&port->poller);
    if (!p) {
        cl_tcp_abort(c);
        return;
    }
    bool taken = lock(p, &state);
    struct endpoint *e = endpoint_new(p);
    if (e) {
        e->conn = c;
        e->port = port;
        cl_tcp_set_user(c, &endpoint_events, e);
        begin(e, c);
        put_ready(e, TOLD_OPENED);
    } else {
        PyErr_Clear();
        cl_tcp_abort(c);
    }
    unlock(taken, state);
}

const struct cl_tcp_events port_events = {.opened = on_accepted};

static void forget_now(struct cl_tcp_conn *c, void *arg)
{
    struct endpoint *e = arg;
    cl_tcp_close(c);
    if (!e->conn)
        return;
    cl_tcp_set_user(c, NULL, NULL);
    e->conn = NULL;
}

static void forget_here(void *arg)
{
    struct endpoint *e = arg;
    if (e->conn)
        (void)cl_tcp_call(e->conn, forget_now, e);
}

void endpoint_forget(struct endpoint *e)
{
    struct transport *t = e->transport;
    Py_INCREF((PyObject *)e);
    e->closing = true;
    *e->at = e->after;
    if (e->after)
        e->after->at = e->at;
    e->at = NULL;
    endpoint_drop_output(e);
    bool connected = e->conn;
    if (connected)
        (void)on_kthread(e->poller, forget_here, e, false);
    if (e->conn)
        e->left = true; /* somebody works on it; on_ended lets go of it, if the runtime has not been gone for long */
    else if (connected)
        Py_DECREF((PyObject *)e);
    e->transport = NULL;
    if (t)
        Py_DECREF(transport_object(t));
    Py_CLEAR(e->opened);
    Py_CLEAR(e->data);
    Py_DECREF((PyObject *)e);
}

/* As an object. */

static PyObject *address(const struct cl_tcp_addr *a)
{
    return Py_BuildValue("(Ii)", a->ipv4, a->port);
}

static PyObject *ends(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(NN)", address(&endpoint_of(self)->own), address(&endpoint_of(self)->peer));
}

struct asking {
    struct endpoint *e;
    int option;
    bool set;
    int64_t value, result;
};

static void ask_now(struct cl_tcp_conn *c, void *arg)
{
    struct asking *a = arg;
    a->result = a->set ? cl_tcp_set_option(c, a->option, a->value) : cl_tcp_option(c, a->option);
}

static void ask_here(void *arg)
{
    struct asking *a = arg;
    if (!a->e->conn)
        a->result = -ENOTCONN;
    else if (!cl_tcp_call(a->e->conn, ask_now, a))
        a->result = -EAGAIN;
}

/* Later, when there is a core: whoever sets an option does not look whether it could be. */
static void set_later(void *arg)
{
    struct asking *a = arg;
    ask_here(a);
    Py_DECREF((PyObject *)a->e); /* of which the caller, or the connection, has one more, or nobody has anything */
    free(a);
}

static int post_setting(const struct asking *a)
{
    struct asking *later = malloc(sizeof *later);
    if (!later)
        return -ENOMEM;
    *later = *a;
    Py_INCREF((PyObject *)a->e);
    int rc = post(a->e->poller, set_later, later, true);
    if (rc) {
        Py_DECREF((PyObject *)a->e);
        free(later);
    }
    return rc;
}

static PyObject *option(PyObject *self, PyObject *args)
{
    struct asking a = {.e = endpoint_of(self)};
    long long value = -1;
    if (!PyArg_ParseTuple(args, "i|L", &a.option, &value))
        return NULL;
    a.set = PyTuple_Size(args) == 2;
    a.value = value;
    int rc = on_kthread(a.e->poller, ask_here, &a, true);
    if (rc == -EAGAIN && a.set)
        rc = post_setting(&a);
    if (rc)
        return poller_fail(-rc, cl_adopt_error(rc));
    if (a.result < 0)
        return poller_fail((int)-a.result, strerror((int)-a.result));
    return PyLong_FromLongLong(a.result);
}

static PyObject *close_method(PyObject *self, PyObject *args)
{
    struct endpoint *e = endpoint_of(self);
    int reset = 0;
    if (!PyArg_ParseTuple(args, "|p", &reset))
        return NULL;
    if (reset)
        endpoint_drop_output(e);
    e->reset |= (bool)reset;
    e->closing = true;
    put_served(e, WANTS_SEND);
    Py_RETURN_NONE;
}

static PyObject *reset_at_close(PyObject *self, PyObject *args)
{
    int on;
    if (!PyArg_ParseTuple(args, "p", &on))
        return NULL;
    endpoint_of(self)->reset = on;
    Py_RETURN_NONE;
}

static PyObject *serve_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    endpoint_serve_now(endpoint_of(self));
    Py_RETURN_NONE;
}

static PyObject *shut_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    endpoint_of(self)->shuts = true;
    put_served(endpoint_of(self), WANTS_SEND);
    Py_RETURN_NONE;
}

static PyObject *drop_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    endpoint_drop_output(endpoint_of(self));
    Py_RETURN_NONE;
}

static PyObject *pause_method(PyObject *self, PyObject *args)
{
    struct endpoint *e = endpoint_of(self);
    int on;
    if (!PyArg_ParseTuple(args, "p", &on))
        return NULL;
    e->paused = on;
    if (!on) {
        put_served(e, WANTS_OFFER);
        if (e->told)
            put_ready(e, 0);
    }
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    struct endpoint *e = endpoint_of(self);
    PyTypeObject *type = Py_TYPE(self);
    endpoint_drop_output(e);
    free(e->out);
    Py_CLEAR(e->data);
    Py_CLEAR(e->opened);
    Py_CLEAR(e->poller);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_open(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(endpoint_of(self)->conn != NULL);
}

static PyObject *get_owned(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(endpoint_of(self)->transport != NULL);
}

static PyObject *get_out_bytes(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSsize_t(endpoint_of(self)->out_bytes);
}

static PyMethodDef methods[] = {
    {"ends", ends, METH_NOARGS, "((own address as a number, port), (peer's, port))."},
    {"option", option, METH_VARARGS, "option(number[, value]): get or set it. Raises OSError."},
    {"close_connection", close_method, METH_VARARGS, "close_connection(reset=False): when what is kept has gone."},
    {"reset_at_close", reset_at_close, METH_VARARGS, "reset_at_close(on): SO_LINGER of 0."},
    {"serve", serve_method, METH_NOARGS, "Do now what the next wait would."},
    {"shut_writing", shut_method, METH_NOARGS, "A FIN follows what is kept."},
    {"drop_output", drop_method, METH_NOARGS, "What is kept is not sent."},
    {"pause", pause_method, METH_VARARGS, "pause(on): what comes waits; or is told of again."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"open", get_open, NULL, "Whether there is a connection.", NULL},
                               {"owned", get_owned, NULL, "Whether there is a transport.", NULL},
                               {"out_bytes", get_out_bytes, NULL, "Bytes that are kept to be sent.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_doc, "A connection. Made by Poller."},
                              {0, NULL}};
PyType_Spec endpoint_spec = {.name = "corelane.libos._asyncio.Endpoint",
                             .basicsize = sizeof(struct endpoint),
                             .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = slots};
