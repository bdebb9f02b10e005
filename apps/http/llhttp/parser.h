/* llhttp, the HTTP/1 parser of Node.js, as Debian's package node-llhttp has it: its C sources are compiled into the
 * library here. Without them the library is built without HTTP, and says so when it is asked for.
 *
 * Strict: a line ends with CR LF, and nothing that two servers could read in two ways is let through. */
#ifndef CORELANE_APPS_HTTP_LLHTTP_PARSER_H
#define CORELANE_APPS_HTTP_LLHTTP_PARSER_H

#if __has_include(<llhttp.h>) && __has_include(<llhttp/llhttp.c>)
#define CL_HTTP_PARSES 1
#define LLHTTP_STRICT_MODE 1
#include <llhttp.h>
#else
#define CL_HTTP_PARSES 0
#endif

#endif
