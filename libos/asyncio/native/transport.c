/* Transports: what of them is called for each piece of data. The rest is Python (../transport.py), on the same fields.
 *
 * The type's base is asyncio's mixin of flow control, a class of Python: its size is known when the module is imported,
 * and our fields lie behind it. The base's slots are never set; members of the same names are ours. */
#include "native.h"

#include <structmember.h>

#include <string.h>

#define SEND_SOON 65536 /* bytes that are kept, beyond which they are sent before the loop waits */

static Py_ssize_t behind; /* where struct transport begins */

struct transport *transport_of(PyObject *self)
{
    return (struct transport *)((char *)self + behind);
}

PyObject *transport_object(struct transport *t)
{
    return (PyObject *)((char *)t - behind);
}

static void replace(PyObject **at, PyObject *by)
{
    PyObject *was = *at;
    *at = by;
    Py_XDECREF(was);
}

static PyObject *write_bytes(struct transport *t, PyObject *bytes)
{
    struct endpoint *e = t->endpoint;
    if (PyBytes_Size(bytes) == 0)
        Py_RETURN_NONE;
    if (cl_unlikely(t->lost || !e))
        return PyObject_CallMethodObjArgs(transport_object(t), names.after_end, NULL);
    if (endpoint_send(e, bytes))
        return NULL;
    if (cl_unlikely(e->out_bytes > SEND_SOON || e->out_bytes > t->high_water)) {
        endpoint_serve_now(e);
        if (e->out_bytes > t->high_water && !t->writing_paused)
            return PyObject_CallMethodObjArgs(transport_object(t), names.pause, NULL);
    }
    Py_RETURN_NONE;
}

/* Bytes that stay as they are. */
static PyObject *bytes_of(PyObject *data)
{
    if (PyBytes_CheckExact(data))
        return Py_NewRef(data);
    if (PyBytes_Check(data) || PyByteArray_Check(data) || PyMemoryView_Check(data))
        return PyBytes_FromObject(data);
    PyObject *name = PyType_GetName(Py_TYPE(data));
    if (name)
        PyErr_Format(PyExc_TypeError, "data argument must be a bytes-like object, not %R", name);
    Py_XDECREF(name);
    return NULL;
}

static bool may_write(const struct transport *t)
{
    if (t->eof)
        PyErr_SetString(PyExc_RuntimeError, "Cannot call write() after write_eof()");
    else if (has_waiter(t))
        PyErr_SetString(PyExc_RuntimeError, "unable to write; sendfile is in progress");
    else
        return true;
    return false;
}

PyObject *transport_write(PyObject *self, PyObject *data)
{
    struct transport *t = transport_of(self);
    PyObject *bytes = bytes_of(data);
    if (!bytes)
        return NULL;
    PyObject *result = may_write(t) ? write_bytes(t, bytes) : NULL;
    Py_DECREF(bytes);
    return result;
}

static PyObject *writelines(PyObject *self, PyObject *pieces)
{
    struct transport *t = transport_of(self);
    PyObject *iterator = PyObject_GetIter(pieces), *result = iterator && may_write(t) ? Py_NewRef(Py_None) : NULL;
    for (PyObject *piece; result && (piece = PyIter_Next(iterator)); Py_DECREF(piece)) {
        PyObject *bytes = bytes_of(piece);
        Py_DECREF(result);
        result = bytes ? write_bytes(t, bytes) : NULL;
        Py_XDECREF(bytes);
    }
    Py_XDECREF(iterator);
    if (result && PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

static PyObject *is_closing(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(transport_of(self)->closing);
}

static PyObject *get_write_buffer_size(PyObject *self, PyObject *unused)
{
    const struct transport *t = transport_of(self);
    (void)unused;
    return PyLong_FromSsize_t(t->endpoint ? t->endpoint->out_bytes : 0);
}

/* begin(endpoint, run): its connection's callbacks come here from now on. */
static PyObject *begin(PyObject *self, PyObject *args)
{
    struct transport *t = transport_of(self);
    PyObject *endpoint, *run;
    if (!PyArg_ParseTuple(args, "OO", &endpoint, &run))
        return NULL;
    struct endpoint *e = endpoint_of(endpoint);
    t->endpoint = (struct endpoint *)Py_NewRef(endpoint);
    t->run = Py_NewRef(run);
    e->buffers = t->get_buffer;
    e->transport = t; /* a cycle, which _end or the end of the loop breaks */
    Py_INCREF(self);
    if (e->told)
        put_ready(e, 0);
    Py_RETURN_NONE;
}

/* made(): connection_made was called, and more is to follow. */
static PyObject *made(PyObject *self, PyObject *unused)
{
    struct transport *t = transport_of(self);
    (void)unused;
    t->made = true;
    if (t->endpoint && t->endpoint->told)
        put_ready(t->endpoint, 0);
    Py_RETURN_NONE;
}

/* feed(the dictionary of the protocol's StreamReader, bytes that it takes without a look): what comes is fed to it. */
static PyObject *feed(PyObject *self, PyObject *args)
{
    struct transport *t = transport_of(self);
    PyObject *reader;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "O!n", &PyDict_Type, &reader, &limit))
        return NULL;
    replace(&t->reader, Py_NewRef(reader));
    t->reader_limit = limit;
    Py_RETURN_NONE;
}

/* end(): connection_lost was called. */
static PyObject *end(PyObject *self, PyObject *unused)
{
    struct transport *t = transport_of(self);
    struct endpoint *e = t->endpoint;
    (void)unused;
    t->endpoint = NULL;
    if (e && e->transport == t) {
        e->transport = NULL;
        endpoint_lost_one(e);
        Py_DECREF(self); /* the caller has another one */
    }
    Py_CLEAR(t->data_received);
    Py_CLEAR(t->get_buffer);
    Py_CLEAR(t->buffer_updated);
    Py_CLEAR(t->reader);
    Py_CLEAR(t->run);
    if (e)
        Py_CLEAR(e->data);
    Py_XDECREF((PyObject *)e);
    Py_RETURN_NONE;
}

/* use(protocol, buffers): its methods are called from now on. */
static PyObject *use(PyObject *self, PyObject *args)
{
    struct transport *t = transport_of(self);
    PyObject *protocol;
    int buffers;
    if (!PyArg_ParseTuple(args, "Op", &protocol, &buffers))
        return NULL;
    PyObject *first = PyObject_GetAttr(protocol, buffers ? names.get_buffer : names.data_received);
    PyObject *second = first && buffers ? PyObject_GetAttr(protocol, names.buffer_updated) : NULL;
    if (!first || (buffers && !second)) {
        Py_CLEAR(first);
        if (buffers || !PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear(); /* it is missed when something comes */
    }
    replace(&t->protocol, Py_NewRef(protocol));
    replace(&t->data_received, buffers ? NULL : first);
    replace(&t->get_buffer, buffers ? first : NULL);
    replace(&t->buffer_updated, second);
    replace(&t->reader, NULL);
    struct endpoint *e = t->endpoint;
    if (e && e->buffers != (bool)buffers) {
        e->buffers = buffers;
        put_served(e, WANTS_OFFER); /* what waits for a buffer, perhaps */
    }
    Py_RETURN_NONE;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    struct transport *t = transport_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->loop);
    Py_VISIT(t->protocol);
    Py_VISIT(t->server);
    Py_VISIT(t->extra);
    Py_VISIT(t->waiter);
    Py_VISIT(t->run);
    Py_VISIT(t->data_received);
    Py_VISIT(t->get_buffer);
    Py_VISIT(t->buffer_updated);
    Py_VISIT(t->reader);
    return 0;
}

static int clear(PyObject *self)
{
    struct transport *t = transport_of(self);
    Py_CLEAR(t->loop);
    Py_CLEAR(t->protocol);
    Py_CLEAR(t->server);
    Py_CLEAR(t->extra);
    Py_CLEAR(t->waiter);
    Py_CLEAR(t->run);
    Py_CLEAR(t->data_received);
    Py_CLEAR(t->get_buffer);
    Py_CLEAR(t->buffer_updated);
    Py_CLEAR(t->reader);
    return 0;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)clear(self);
    Py_CLEAR(transport_of(self)->endpoint); /* whose connection is over: while it lives it has a reference to us */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_endpoint(PyObject *self, void *closure)
{
    const struct transport *t = transport_of(self);
    (void)closure;
    return Py_NewRef(t->endpoint ? (PyObject *)t->endpoint : Py_None);
}

static PyMethodDef methods[] = {
    {"write", transport_write, METH_O, "write(data)\n--\n\nSend data, some time soon."},
    {"writelines", writelines, METH_O, "writelines(pieces)\n--\n\nSend all of them, some time soon."},
    {"is_closing", is_closing, METH_NOARGS, "is_closing()\n--\n\nWhether it is closing, or closed."},
    {"get_write_buffer_size", get_write_buffer_size, METH_NOARGS,
     "get_write_buffer_size()\n--\n\nBytes that are kept to be sent."},
    {"_begin", begin, METH_VARARGS, NULL},
    {"_made", made, METH_NOARGS, NULL},
    {"_feed", feed, METH_VARARGS, NULL},
    {"_end", end, METH_NOARGS, NULL},
    {"_use", use, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"_endpoint", get_endpoint, NULL, "Its endpoint, or None.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

#define FIELD(name, type, field)                                                                                       \
    {                                                                                                                  \
        name, type, offsetof(struct transport, field), 0, NULL                                                         \
    }
static PyMemberDef members[] = {FIELD("_loop", T_OBJECT, loop),
                                FIELD("_protocol", T_OBJECT, protocol),
                                FIELD("_server", T_OBJECT, server),
                                FIELD("_extra", T_OBJECT, extra),
                                FIELD("_empty_waiter", T_OBJECT, waiter),
                                FIELD("_high_water", T_PYSSIZET, high_water),
                                FIELD("_low_water", T_PYSSIZET, low_water),
                                FIELD("_conn_lost", T_LONG, lost),
                                FIELD("_closing", T_BOOL, closing),
                                FIELD("_paused", T_BOOL, paused),
                                FIELD("_eof", T_BOOL, eof),
                                FIELD("_protocol_paused", T_BOOL, writing_paused),
                                FIELD("_protocol_connected", T_BOOL, connected),
                                {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_members, members},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_tp_doc, "The fields and hot methods of a transport."},
                              {0, NULL}};

PyObject *transport_make_type(PyObject *module)
{
    PyObject *transports = PyImport_ImportModule("asyncio.transports");
    PyObject *base = transports ? PyObject_GetAttrString(transports, "_FlowControlMixin") : NULL;
    PyObject *size = base ? PyObject_GetAttrString(base, "__basicsize__") : NULL;
    Py_ssize_t basic = size ? PyLong_AsSsize_t(size) : -1;
    Py_XDECREF(transports);
    Py_XDECREF(size);
    if (basic < 0) {
        Py_XDECREF(base);
        return NULL;
    }
    if (!behind) {
        behind = (basic + 15) / 16 * 16;
        for (PyMemberDef *m = members; m->name; m++)
            m->offset += behind;
    }
    PyType_Spec spec = {.name = "corelane.libos._asyncio.Transport",
                        .basicsize = (int)(behind + (Py_ssize_t)sizeof(struct transport)),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                        .slots = slots};
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, base);
    Py_DECREF(base);
    return type;
}
