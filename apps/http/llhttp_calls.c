/* llhttp's calls, apart from its machine: both name the same functions with different types. See llhttp.h. */
#include "llhttp.h"

#if CL_HTTP_PARSES
#include <llhttp/api.c>
#include <llhttp/http.c>
#endif
