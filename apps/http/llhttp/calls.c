/* llhttp's calls, apart from its machine: both name the same functions with different types. See parser.h. */
#include "parser.h"

#if CL_HTTP_PARSES
#include <llhttp/api.c>
#include <llhttp/http.c>
#endif
