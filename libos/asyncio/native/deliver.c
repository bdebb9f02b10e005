/* Calling protocols. See native.h. */
#include "native.h"

#include <string.h>

/* A method of the transport's own has raised what is set, as connection_lost may inside of it. The loop's handler of
 * exceptions hears of it, as of what comes out of any callback. -1: it is for whoever runs the loop. */
static int report(PyObject *loop, struct transport *t)
{
    PyObject *error = take_exception();
    PyObject *done =
        error ? PyObject_CallMethodObjArgs(loop, names.transport_failed, transport_object(t), error, NULL) : NULL;
    Py_XDECREF(error);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Call a method of the transport's in its context: what is called soon, from there, is called there. Arguments may be
 * NULL, the last ones. Nothing is called once connection_lost was. -1: the exception is for whoever runs the loop, or
 * it is of a transport that has no loop (../pulled.py). */
static int call_own(struct transport *t, PyObject *name, PyObject *first, PyObject *second)
{
    if (!t->run)
        return 0;
    PyObject *run = Py_NewRef(t->run), *loop = Py_XNewRef(t->loop); /* the call may end the transport */
    PyObject *bound = PyObject_GetAttr(transport_object(t), name);
    PyObject *result = bound ? PyObject_CallFunctionObjArgs(run, bound, first, second, NULL) : NULL;
    int rc = result ? 0 : loop && loop != Py_None ? report(loop, t) : -1;
    Py_XDECREF(result);
    Py_XDECREF(bound);
    Py_DECREF(run);
    Py_XDECREF(loop);
    return rc;
}

/* A protocol's method has raised what is set. 0: its transport has been told; -1: it is for whoever runs the loop. */
static int failed(struct transport *t, const char *message)
{
    PyObject *error = take_exception();
    PyObject *text = error ? PyUnicode_FromString(message) : NULL;
    int rc = text ? call_own(t, names.fatal_error, error, text) : -1;
    Py_XDECREF(text);
    Py_XDECREF(error);
    return rc;
}

/* Call a method in the transport's context. arg may be NULL; its reference is taken. */
static PyObject *call(struct transport *t, PyObject *method, PyObject *arg)
{
    PyObject *run = Py_NewRef(t->run);
    PyObject *result = call_with(run, method, arg);
    Py_DECREF(run);
    Py_XDECREF(arg);
    return result;
}

/* Fill a buffer of the protocol's by `fill`, which returns how many bytes, and tell it. Returns that number, 0: nothing
 * is there; -1: the exception is for whoever runs the loop; -2: it was the protocol's, and its transport knows. */
typedef Py_ssize_t (*fill_fn)(struct endpoint *e, void *data, Py_ssize_t room);

static Py_ssize_t fail(struct transport *t, const char *message)
{
    return failed(t, message) ? -1 : -2;
}

static Py_ssize_t fill_buffer(struct endpoint *e, struct transport *t, fill_fn fill)
{
    Py_buffer view;
    PyObject *buffer = call(t, t->get_buffer, PyLong_FromLong(-1));
    if (buffer && PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE) == 0) {
        if (view.len == 0) {
            PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
            PyBuffer_Release(&view);
            Py_CLEAR(buffer);
        }
    } else {
        Py_CLEAR(buffer);
    }
    if (!buffer)
        return fail(t, "Fatal error: protocol.get_buffer() call failed.");
    Py_ssize_t n = t->lost || !t->endpoint ? 0 : fill(e, view.buf, view.len);
    PyBuffer_Release(&view);
    Py_DECREF(buffer);
    if (n <= 0)
        return n < 0 ? 0 : n;
    e->poller->given++;
    PyObject *result = call(t, t->buffer_updated, PyLong_FromSsize_t(n));
    if (!result)
        return fail(t, "Fatal error: protocol.buffer_updated() call failed.");
    Py_DECREF(result);
    return n;
}

/* Of what was taken before the protocol had buffers. */
static Py_ssize_t fill_from_data(struct endpoint *e, void *data, Py_ssize_t room)
{
    Py_ssize_t n = cl_min(room, e->got);
    char *from = PyBytes_AsString(e->data);
    memcpy(data, from, (size_t)n);
    memmove(from, from + n, (size_t)(e->got - n)); /* seldom: a protocol was changed in the middle of a stream */
    e->got -= n;
    return n;
}

static int tell_waiting(struct endpoint *e, struct transport *t)
{
    Py_ssize_t n = 1;
    while (e->got && n > 0 && !t->lost && !t->paused && t->get_buffer)
        n = fill_buffer(e, t, fill_from_data);
    if (e->got == 0)
        Py_CLEAR(e->data);
    if (n > 0 && !e->got && !t->lost && !t->paused && t->get_buffer && e->conn) {
        n = fill_buffer(e, t, endpoint_read);
        if (n > 0 && t->endpoint)
            put_ready(e, TOLD_WAITING);
    }
    return n == -1 ? -1 : 0;
}

static int tell_data(struct endpoint *e, struct transport *t)
{
    if (!e->data)
        return 0;
    e->poller->given++;
    if (t->get_buffer)
        return tell_waiting(e, t);
    PyObject *data = endpoint_take_data(e);
    if (!data)
        return failed(t, "Fatal error: there is no memory for what has come.");
    PyObject *reader = Py_XNewRef(t->reader);
    int fed = reader ? stream_feed(reader, t->reader_limit, data) : 0;
    Py_XDECREF(reader);
    if (fed) {
        Py_DECREF(data);
        return fed > 0 ? 0 : failed(t, "Fatal error: protocol.data_received() call failed.");
    }
    PyObject *fn = t->data_received ? Py_NewRef(t->data_received) : PyObject_GetAttr(t->protocol, names.data_received);
    PyObject *result = fn ? call(t, fn, data) : NULL;
    if (!fn)
        Py_DECREF(data);
    Py_XDECREF(fn);
    if (!result)
        return failed(t, "Fatal error: protocol.data_received() call failed.");
    Py_DECREF(result);
    return 0;
}

static int tell_eof(struct transport *t)
{
    PyObject *method = PyObject_GetAttr(t->protocol, names.eof_received);
    PyObject *result = method ? call(t, method, NULL) : NULL;
    Py_XDECREF(method);
    if (!result)
        return failed(t, "Fatal error: protocol.eof_received() call failed.");
    int stays = PyObject_IsTrue(result);
    Py_DECREF(result);
    if (stays < 0)
        return failed(t, "Fatal error: protocol.eof_received() call failed.");
    return stays ? 0 : call_own(t, names.close, NULL, NULL);
}

static int tell_over(struct endpoint *e, struct transport *t)
{
    PyObject *error = PyLong_FromLong(e->error);
    int rc = error ? call_own(t, names.over, error, NULL) : -1;
    Py_XDECREF(error);
    return rc;
}

static bool takes(unsigned *left, unsigned what)
{
    bool has = *left & what;
    *left &= ~what;
    return has;
}

/* What of `told` is not to be told yet stays in e->told, and what could not be told since a call before has failed. */
static int tell_transport(struct endpoint *e, struct transport *t, unsigned told)
{
    int rc = 0;
    unsigned held = t->paused || !t->made ? TOLD_DATA | TOLD_WAITING | TOLD_EOF : 0, left = told & ~held;
    e->told |= (uint8_t)(told & held);
    if (takes(&left, TOLD_DATA) && !t->closing)
        rc = tell_data(e, t);
    if (rc == 0 && takes(&left, TOLD_WAITING) && !t->closing)
        rc = tell_waiting(e, t);
    if (rc == 0 && takes(&left, TOLD_ROOM)) {
        if (t->writing_paused && e->out_bytes <= t->low_water)
            rc = call_own(t, names.resume, NULL, NULL);
        if (e->closing)
            put_served(e, WANTS_SEND);
    }
    if (rc == 0 && takes(&left, TOLD_EOF)) {
        if (t->paused) /* meanwhile: it comes with the rest */
            e->told |= TOLD_EOF;
        else if (!t->closing)
            rc = tell_eof(t);
    }
    if (rc == 0 && takes(&left, TOLD_SENT) && t->endpoint)
        rc = call_own(t, names.all_sent, NULL, NULL);
    if (rc == 0 && takes(&left, TOLD_OVER) && !t->lost)
        rc = tell_over(e, t);
    if (rc && left)
        put_ready(e, left);
    return rc;
}

static int settle(struct endpoint *e, unsigned told)
{
    PyObject *future = e->opened, *error = PyLong_FromLong(e->error), *done = NULL;
    e->opened = NULL;
    if (told & TOLD_OPENED)
        done = PyObject_CallMethodObjArgs((PyObject *)e, names.connected, future, NULL);
    else if (error)
        done = PyObject_CallMethodObjArgs((PyObject *)e, names.refused, future, error, NULL);
    Py_XDECREF(error);
    Py_DECREF(future);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int tell_one(struct endpoint *e)
{
    unsigned told = e->told;
    int rc = 0;
    e->told = 0;
    if (e->opened && (told & (TOLD_OPENED | TOLD_OVER)))
        rc = settle(e, told);
    else if ((told & TOLD_OPENED) && e->port && !e->transport)
        rc = ports_accept(e);
    told &= ~(unsigned)TOLD_OPENED;
    struct transport *t = e->transport;
    if (!t || rc) {
        e->told |= (uint8_t)told; /* until it has one, or we come back */
        return rc;
    }
    PyObject *keep = Py_NewRef(transport_object(t));
    e->poller->told++;
    rc = tell_transport(e, t, told);
    Py_DECREF(keep);
    return rc;
}

int deliver(struct poller *p)
{
    size_t n = p->n_ready;
    int rc = 0;
    p->bursts += n > 0;
    while (n-- && rc == 0) {
        struct endpoint *e = pop_ready(p);
        if (!e)
            break;
        rc = tell_one(e);
        Py_DECREF((PyObject *)e);
        if (rc == 0)
            poller_send_some(p);
    }
    return rc ? rc : datagrams_deliver(p);
}
