/* The table of commands. */
#ifndef CORELANE_APPS_RESP_TABLE_H
#define CORELANE_APPS_RESP_TABLE_H

#include "command.h"

extern const struct cl_rcmd cl_rtable[]; /* ends with a name of NULL */

#endif
