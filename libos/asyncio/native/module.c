/* The module corelane.libos._asyncio. See native.h. */
#include "native.h"

struct names names;
struct imported imported;

static int add(PyObject *module, const char *name, PyObject *type)
{
    if (!type)
        return -1;
    int rc = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return rc;
}

static int intern(void)
{
    static const struct {
        PyObject **to;
        const char *name;
    } all[] = {{&names.data_received, "data_received"},
               {&names.get_buffer, "get_buffer"},
               {&names.buffer_updated, "buffer_updated"},
               {&names.eof_received, "eof_received"},
               {&names.close, "close"},
               {&names.fatal_error, "_fatal_error"},
               {&names.over, "_connection_over"},
               {&names.all_sent, "_all_sent"},
               {&names.resume, "_maybe_resume_protocol"},
               {&names.pause, "_maybe_pause_protocol"},
               {&names.after_end, "_write_after_end"},
               {&names.connected, "_connected"},
               {&names.refused, "_refused"},
               {&names.run, "run"},
               {&names.context, "context"},
               {&names.callback, "callback"},
               {&names.delay, "delay"},
               {&names.when, "when"},
               {&names.loop, "loop"},
               {&names.look_closely, "_look_closely"},
               {&names.trace, "_trace"},
               {&names.callback_failed, "_callback_failed"},
               {&names.run_handle, "_run_handle"},
               {&names.tell_descriptors, "_tell_descriptors"},
               {&names.interrupt, "_interrupt"},
               {&names.buffer, "_buffer"},
               {&names.waiter, "_waiter"},
               {&names.eof, "_eof"},
               {&names.paused, "_paused"},
               {&names.transport, "_transport"},
               {&names.exception, "_exception"},
               {&names.own_loop, "_loop"},
               {&names.cancelled, "cancelled"},
               {&names.set_result, "set_result"},
               {&names.resume_reading, "resume_reading"},
               {&names.create_future, "create_future"},
               {&names.maybe_resume, "_maybe_resume_transport"},
               {&names.throw, "throw"},
               {&names.told, "told"},
               {&names.transport_failed, "_transport_failed"}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!*all[i].to && !(*all[i].to = PyUnicode_InternFromString(all[i].name)))
            return -1;
    return 0;
}

static PyObject *of_module(const char *module, const char *name)
{
    PyObject *from = PyImport_ImportModule(module), *found = from ? PyObject_GetAttrString(from, name) : NULL;
    Py_XDECREF(from);
    return found;
}

static PyObject *method_of(const char *type, const char *name)
{
    PyObject *of = of_module("asyncio.streams", type), *found = of ? PyObject_GetAttrString(of, name) : NULL;
    Py_XDECREF(of);
    return found;
}

static int import(PyObject *module)
{
    PyObject *const all[] = {imported.copy_context = of_module("contextvars", "copy_context"),
                             imported.future = of_module("asyncio.futures", "Future"),
                             imported.no_arguments = PyTuple_New(0),
                             imported.stream_read = method_of("StreamReader", "read"),
                             imported.stream_write = method_of("StreamWriter", "write"),
                             imported.stream_drain = method_of("StreamWriter", "drain"),
                             imported.ready_type = PyType_FromModuleAndSpec(module, &ready_spec, NULL),
                             imported.loop_type = PyType_FromModuleAndSpec(module, &loop_spec, NULL),
                             imported.transport_type = transport_make_type(module)};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i])
            return -1;
    return 0;
}

static int exec(PyObject *module)
{
    if (intern() || import(module) || handles_make_types(module))
        return -1;
    if (add(module, "Poller", PyType_FromModuleAndSpec(module, &poller_spec, NULL)) ||
        add(module, "Endpoint", PyType_FromModuleAndSpec(module, &endpoint_spec, NULL)) ||
        add(module, "Datagrams", PyType_FromModuleAndSpec(module, &datagrams_spec, NULL)) ||
        add(module, "Loop", Py_NewRef(imported.loop_type)) || add(module, "Streams", streams_make_type(module)))
        return -1;
    return add(module, "Transport", Py_NewRef(imported.transport_type));
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec}, {0, NULL}};
static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "corelane.libos._asyncio",
                                    .m_doc = "What the event loop does in C. For corelane.libos.asyncio.",
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit__asyncio(void);
PyMODINIT_FUNC PyInit__asyncio(void)
{
    return PyModuleDef_Init(&module);
}
