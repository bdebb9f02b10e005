/* What a message costs an interpreter at the least: the floor of every event loop that calls protocols in Python.
 *
 * A CPython extension, compiled while the benchmark runs. Its transport sends nothing: `write` adds up the bytes that
 * it is given. `enter` gives each of some protocols in turn a bytes object of its own, as a transport has to, by
 * `data_received`. So there is one entry into Python, one call out of it, and one object for each message; no loop, no
 * socket, no segment. API of CPython 3.11 and newer. */
#ifdef CORELANE_PYTHON_ENTRY
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

struct transport {
    PyObject head;
    unsigned long long messages, bytes;
};

static PyObject *transport_write(PyObject *self, PyObject *data)
{
    struct transport *t = (struct transport *)self;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "this transport takes bytes");
        return NULL;
    }
    t->messages++;
    t->bytes += (unsigned long long)PyBytes_GET_SIZE(data);
    Py_RETURN_NONE;
}

static PyObject *transport_counts(PyObject *self, PyObject *Py_UNUSED(none))
{
    struct transport *t = (struct transport *)self;
    return Py_BuildValue("KK", t->messages, t->bytes);
}

static PyMethodDef transport_methods[] = {
    {"write", transport_write, METH_O, "Take bytes, and send none of them."},
    {"counts", transport_counts, METH_NOARGS, "Messages and bytes that it was given."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject transport_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "python_entry.Transport",
    .tp_basicsize = sizeof(struct transport),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = transport_methods,
    .tp_new = PyType_GenericNew,
};

/* enter(received, size, count): calls received[i % len], a tuple of bound `data_received`, `count` times. */
static PyObject *enter(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *received;
    Py_ssize_t size, count;
    static char message[65536];
    if (!PyArg_ParseTuple(args, "O!nn", &PyTuple_Type, &received, &size, &count))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(received);
    if (!n || size < 1 || size > (Py_ssize_t)sizeof(message)) {
        PyErr_SetString(PyExc_ValueError, "enter takes some callables, and messages of 1 to 65536 bytes");
        return NULL;
    }
    memset(message, '.', (size_t)size);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *data = PyBytes_FromStringAndSize(message, size);
        if (!data)
            return NULL;
        PyObject *none = PyObject_CallOneArg(PyTuple_GET_ITEM(received, i % n), data);
        Py_DECREF(data);
        if (!none)
            return NULL;
        Py_DECREF(none);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"enter", enter, METH_VARARGS, "enter(received, size, count): call them in turn with messages of `size` bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "python_entry", .m_size = -1,
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit_python_entry(void)
{
    if (PyType_Ready(&transport_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddObjectRef(module, "Transport", (PyObject *)&transport_type) < 0)
        Py_CLEAR(module);
    return module;
}
#endif
