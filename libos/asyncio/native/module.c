/* The module corelane.libos._asyncio. See native.h. */
#include "native.h"

struct names names;

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
               {&names.told, "told"}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!*all[i].to && !(*all[i].to = PyUnicode_InternFromString(all[i].name)))
            return -1;
    return 0;
}

static int exec(PyObject *module)
{
    if (intern())
        return -1;
    if (add(module, "Poller", PyType_FromModuleAndSpec(module, &poller_spec, NULL)) ||
        add(module, "Endpoint", PyType_FromModuleAndSpec(module, &endpoint_spec, NULL)) ||
        add(module, "Datagrams", PyType_FromModuleAndSpec(module, &datagrams_spec, NULL)))
        return -1;
    return add(module, "Transport", transport_make_type(module));
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
