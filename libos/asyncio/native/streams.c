/* asyncio's streams: what of them is called for each piece of data, for readers and writers whose state is where
 * asyncio has it, in their attributes. All else of them is asyncio's, and finds what it expects. See native.h,
 * ../streams.py.
 *
 * `read` gives a coroutine as asyncio's does: nothing happens before it is awaited. `drain` looks at once, and gives
 * one that is done where asyncio's would be at its first step; else asyncio's own. */
#include "native.h"

#include <string.h>

static PyObject *reading_type, *done; /* `done`: what waits for nothing */

/* Of what a reader or writer has: `has`, its dictionary. Borrowed; NULL with an exception. */
static PyObject *get(PyObject *has, PyObject *name)
{
    PyObject *value = PyDict_GetItemWithError(has, name);
    if (cl_unlikely(!value) && !PyErr_Occurred())
        PyErr_SetObject(PyExc_AttributeError, name);
    return value;
}

/* 1, 0, -1: an exception. */
static int is_true(PyObject *has, PyObject *name)
{
    PyObject *value = get(has, name);
    return value ? PyObject_IsTrue(value) : -1;
}

static bool call(PyObject *o, PyObject *name)
{
    PyObject *result = call_method(o, name, NULL, NULL, NULL);
    Py_XDECREF(result);
    return result;
}

/* The buffer of a reader: borrowed, or NULL. Nothing of Python's runs while it is used. */
static PyObject *buffer_of(PyObject *has)
{
    PyObject *buffer = get(has, names.buffer);
    if (buffer && PyByteArray_Check(buffer))
        return buffer;
    if (buffer)
        PyErr_SetString(PyExc_TypeError, "a StreamReader's _buffer is a bytearray");
    return NULL;
}

/* What is fed. */

static int wake(PyObject *has)
{
    PyObject *waiter = get(has, names.waiter), *cancelled, *result;
    if (!waiter || waiter == Py_None)
        return waiter ? 0 : -1;
    Py_INCREF(waiter);
    if (PyDict_SetItem(has, names.waiter, Py_None)) {
        Py_DECREF(waiter);
        return -1;
    }
    cancelled = call_method(waiter, names.cancelled, NULL, NULL, NULL);
    result = cancelled == Py_False ? call_method(waiter, names.set_result, Py_None, NULL, NULL) : Py_XNewRef(cancelled);
    Py_XDECREF(cancelled);
    Py_XDECREF(result);
    Py_DECREF(waiter);
    return result ? 0 : -1;
}

int stream_feed(PyObject *has, Py_ssize_t limit, PyObject *data)
{
    Py_ssize_t len = PyBytes_Size(data), size;
    int at_end = is_true(has, names.eof);
    PyObject *buffer = at_end ? NULL : buffer_of(has);
    if (!buffer)
        return at_end > 0 ? 0 : -1;
    size = PyByteArray_Size(buffer);
    if (size + len > limit) /* its transport is to be paused, perhaps */
        return 0;
    if (PyByteArray_Resize(buffer, size + len))
        return -1;
    memcpy(PyByteArray_AsString(buffer) + size, PyBytes_AsString(data), (size_t)len);
    return wake(has) ? -1 : 1;
}

/* Reading. */

enum { BEGINS, WAITS, OVER };

struct reading {
    PyObject_HEAD PyObject *reader, *has; /* references; what it has: its dictionary */
    PyObject *waiting;                    /* the iterator of a future, or NULL */
    Py_ssize_t most;
    int state;
};

#define reading_of(o) ((struct reading *)(o))

/* It waits no more, and the reader knows it. */
static bool over(struct reading *r)
{
    r->state = OVER;
    Py_CLEAR(r->waiting);
    return PyDict_SetItem(r->has, names.waiter, Py_None) == 0;
}

/* The same while an exception is on its way, or may be: it stays what it is. */
static void give_up(struct reading *r)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!over(r))
        PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

/* Its transport had to wait. */
static bool resume_transport(PyObject *has)
{
    PyObject *transport = PyDict_SetItem(has, names.paused, Py_False) ? NULL : Py_XNewRef(get(has, names.transport));
    bool resumed = transport && call(transport, names.resume_reading);
    Py_XDECREF(transport);
    return resumed;
}

/* Have a future for what comes. */
static bool wait(struct reading *r)
{
    PyObject *waiter = get(r->has, names.waiter), *loop = get(r->has, names.own_loop);
    if (!waiter || !loop)
        return false;
    if (waiter != Py_None) {
        PyErr_SetString(PyExc_RuntimeError,
                        "read() called while another coroutine is already waiting for incoming data");
        return false;
    }
    int paused = is_true(r->has, names.paused);
    if (paused < 0 || (paused && !resume_transport(r->has)))
        return false;
    PyObject *future = loop_future(loop);
    if (future && PyDict_SetItem(r->has, names.waiter, future) == 0)
        r->waiting = PyObject_GetIter(future);
    Py_XDECREF(future);
    return r->waiting;
}

/* At the first step: whether there is something, or will be nothing more; 0: one has to wait. -1: an exception. */
static int look(const struct reading *r)
{
    PyObject *exception = get(r->has, names.exception), *buffer;
    if (exception != Py_None) {
        if (exception)
            PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        return -1;
    }
    if (!(buffer = buffer_of(r->has)))
        return -1;
    return PyByteArray_Size(buffer) ? 1 : is_true(r->has, names.eof);
}

static PyObject *take(const struct reading *r)
{
    PyObject *buffer = buffer_of(r->has);
    if (!buffer)
        return NULL;
    Py_ssize_t size = PyByteArray_Size(buffer), n = cl_min(size, r->most);
    PyObject *data = PyBytes_FromStringAndSize(PyByteArray_AsString(buffer), n);
    bool dropped = data && (n == size ? PyByteArray_Resize(buffer, 0) : PySequence_DelSlice(buffer, 0, n)) == 0;
    int paused = dropped ? is_true(r->has, names.paused) : -1;
    if (paused < 0 || (paused && !call(r->reader, names.maybe_resume)))
        Py_CLEAR(data);
    return data;
}

static PySendResult step(PyObject *self, PyObject *value, PyObject **result)
{
    struct reading *r = reading_of(self);
    int there;
    *result = NULL;
    if (r->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    if (r->state == BEGINS) {
        there = look(r);
        r->state = there == 0 && wait(r) ? WAITS : OVER;
        if (there < 0 || (there == 0 && r->state == OVER))
            return PYGEN_ERROR;
    }
    if (r->state == WAITS) {
        PySendResult how = PyIter_Send(r->waiting, value, result);
        if (how == PYGEN_NEXT)
            return how;
        if (how == PYGEN_ERROR) {
            give_up(r);
            return how;
        }
        Py_CLEAR(*result);
        Py_CLEAR(r->waiting); /* whoever has woken us has taken the future from the reader */
        r->state = OVER;
    }
    *result = take(r);
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* What `step` and its like give, as a method. */
static PyObject *as_method(PySendResult how, PyObject *result)
{
    if (how != PYGEN_RETURN)
        return result;
    PyErr_SetObject(PyExc_StopIteration, result);
    Py_DECREF(result);
    return NULL;
}

static PyObject *reading_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    PySendResult how = step(self, value, &result);
    return as_method(how, result);
}

static PyObject *reading_next(PyObject *self)
{
    return reading_send(self, Py_None);
}

/* throw(exception), or throw(type, exception, traceback). */
static PyObject *raise(PyObject *args)
{
    PyObject *type, *value = NULL, *trace = NULL;
    if (!PyArg_ParseTuple(args, "O|OO", &type, &value, &trace))
        return NULL;
    if (value && value != Py_None && PyExceptionInstance_Check(value))
        type = value;
    if (PyExceptionInstance_Check(type))
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    else
        PyErr_SetObject(type, value == Py_None ? NULL : value);
    return NULL;
}

static PyObject *reading_throw(PyObject *self, PyObject *args)
{
    struct reading *r = reading_of(self);
    PyObject *throw = r->waiting ? PyObject_GetAttr(r->waiting, names.throw) : NULL, *result;
    if (r->waiting && !throw)
        return NULL;
    result = throw ? PyObject_CallObject(throw, args) : raise(args);
    Py_XDECREF(throw);
    if (result)
        return result; /* it waits again */
    if (r->state == WAITS)
        give_up(r);
    r->state = OVER;
    return NULL;
}

static PyObject *reading_close(PyObject *self, PyObject *unused)
{
    struct reading *r = reading_of(self);
    (void)unused;
    if (r->state == WAITS && !over(r))
        return NULL;
    r->state = OVER;
    Py_RETURN_NONE;
}

static int reading_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct reading *r = reading_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->reader);
    Py_VISIT(r->has);
    Py_VISIT(r->waiting);
    return 0;
}

static int reading_clear(PyObject *self)
{
    struct reading *r = reading_of(self);
    r->state = OVER;
    Py_CLEAR(r->reader);
    Py_CLEAR(r->has);
    Py_CLEAR(r->waiting);
    return 0;
}

static void reading_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (reading_of(self)->state == WAITS) /* a task that is dropped: what asyncio's would do at its end */
        give_up(reading_of(self));
    (void)reading_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *itself(PyObject *self)
{
    return Py_NewRef(self);
}

static PyMethodDef reading_methods[] = {{"send", reading_send, METH_O, NULL},
                                        {"throw", reading_throw, METH_VARARGS, NULL},
                                        {"close", reading_close, METH_NOARGS, NULL},
                                        {NULL, NULL, 0, NULL}};
static PyType_Slot reading_slots[] = {{Py_tp_dealloc, reading_dealloc},
                                      {Py_tp_methods, reading_methods},
                                      {Py_tp_traverse, reading_traverse},
                                      {Py_tp_clear, reading_clear},
                                      {Py_tp_iter, itself},
                                      {Py_tp_iternext, reading_next},
                                      {Py_am_await, itself},
                                      {Py_am_send, step},
                                      {Py_tp_doc, "A coroutine: StreamReader.read"},
                                      {0, NULL}};
static PyType_Spec reading_spec = {.name = "corelane.libos._asyncio.Reading",
                                   .basicsize = sizeof(struct reading),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = reading_slots};

/* What is done. */

static PySendResult done_step(PyObject *self, PyObject *value, PyObject **result)
{
    (void)self, (void)value;
    *result = Py_NewRef(Py_None);
    return PYGEN_RETURN;
}

static PyObject *done_send(PyObject *self, PyObject *value)
{
    (void)self, (void)value;
    return as_method(PYGEN_RETURN, Py_NewRef(Py_None));
}

static PyObject *done_next(PyObject *self)
{
    return done_send(self, Py_None);
}

static PyObject *done_throw(PyObject *self, PyObject *args)
{
    (void)self;
    return raise(args);
}

static PyObject *done_close(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_RETURN_NONE;
}

static PyMethodDef done_methods[] = {{"send", done_send, METH_O, NULL},
                                     {"throw", done_throw, METH_VARARGS, NULL},
                                     {"close", done_close, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot done_slots[] = {{Py_tp_methods, done_methods},
                                   {Py_tp_iter, itself},
                                   {Py_tp_iternext, done_next},
                                   {Py_am_await, itself},
                                   {Py_am_send, done_step},
                                   {Py_tp_doc, "A coroutine that waits for nothing: StreamWriter.drain"},
                                   {0, NULL}};
static PyType_Spec done_spec = {.name = "corelane.libos._asyncio.Done",
                                .basicsize = sizeof(PyObject),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = done_slots};

/* Methods of readers and writers. */

static PyObject *original(PyObject *method, PyObject *self, PyObject *arg)
{
    return PyObject_CallFunctionObjArgs(method, self, arg, NULL);
}

static PyObject *read_method(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    Py_ssize_t most = -1;
    bool named = keywords && PyTuple_Size(keywords) == 1 && n == 0 &&
                 PyUnicode_CompareWithASCIIString(PyTuple_GetItem(keywords, 0), "n") == 0;
    if (n > 1 || (keywords && PyTuple_Size(keywords) && !named)) {
        PyErr_SetString(PyExc_TypeError, "read() takes a number of bytes, n=-1");
        return NULL;
    }
    PyObject *wanted = n == 1 || named ? args[0] : NULL;
    if (wanted && (!PyLong_Check(wanted) || ((most = PyLong_AsSsize_t(wanted)) == -1 && PyErr_Occurred())))
        PyErr_Clear(); /* asyncio's says what it thinks of it */
    if (most <= 0)
        return original(imported.stream_read, self, wanted);
    PyObject *has = PyObject_GenericGetDict(self, NULL);
    PyObject *reading = has ? PyType_GenericAlloc((PyTypeObject *)reading_type, 0) : NULL;
    if (!reading) {
        Py_XDECREF(has);
        return NULL;
    }
    reading_of(reading)->reader = Py_NewRef(self);
    reading_of(reading)->has = has;
    reading_of(reading)->most = most;
    return reading;
}

/* Of a writer that has this: its transport, if it is ours; else NULL, perhaps with an exception. Borrowed. */
static PyObject *transport_of_writer(PyObject *has)
{
    PyObject *transport = get(has, names.transport);
    return transport && PyObject_TypeCheck(transport, (PyTypeObject *)imported.transport_type) ? transport : NULL;
}

static PyObject *write_method(PyObject *self, PyObject *data)
{
    PyObject *has = PyObject_GenericGetDict(self, NULL);
    PyObject *transport = has ? Py_XNewRef(transport_of_writer(has)) : NULL;
    Py_XDECREF(has);
    if (!transport)
        return PyErr_Occurred() ? NULL : original(imported.stream_write, self, data);
    PyObject *result = transport_write(transport, data);
    Py_DECREF(transport);
    return result;
}

/* Of a writer that has this. 1: it waits for nothing; 0: asyncio's looks; -1: an exception. */
static int is_drained(PyObject *has)
{
    PyObject *transport = transport_of_writer(has), *exception;
    const struct transport *t = transport ? transport_of(transport) : NULL;
    if (!t || !t->reader || t->closing || t->lost || t->writing_paused)
        return t || !PyErr_Occurred() ? 0 : -1;
    exception = get(t->reader, names.exception);
    return exception ? exception == Py_None : -1;
}

static PyObject *drain_method(PyObject *self, PyObject *unused)
{
    PyObject *has = PyObject_GenericGetDict(self, NULL);
    int drained = has ? is_drained(has) : -1;
    (void)unused;
    Py_XDECREF(has);
    if (drained < 0)
        return NULL;
    return drained ? Py_NewRef(done) : original(imported.stream_drain, self, NULL);
}

static PyMethodDef methods[] = {{"read", (PyCFunction)(void (*)(void))read_method, METH_FASTCALL | METH_KEYWORDS,
                                 "read(n=-1)\n--\n\nAs of any StreamReader."},
                                {"write", write_method, METH_O, "write(data)\n--\n\nAs of any StreamWriter."},
                                {"drain", drain_method, METH_NOARGS, "drain()\n--\n\nAs of any StreamWriter."},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_methods, methods}, {Py_tp_doc, "Methods of StreamReader and StreamWriter, for subclasses."}, {0, NULL}};
static PyType_Spec spec = {.name = "corelane.libos._asyncio.Streams",
                           .basicsize = sizeof(PyObject),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           .slots = slots};

PyObject *streams_make_type(PyObject *module)
{
    PyObject *done_type = PyType_FromModuleAndSpec(module, &done_spec, NULL);
    done = done_type ? PyType_GenericAlloc((PyTypeObject *)done_type, 0) : NULL;
    reading_type = PyType_FromModuleAndSpec(module, &reading_spec, NULL);
    Py_XDECREF(done_type);
    return done && reading_type ? PyType_FromModuleAndSpec(module, &spec, NULL) : NULL;
}
