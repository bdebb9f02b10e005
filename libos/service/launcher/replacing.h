/* --replace: waiting for those that were replaced, as cli/replacing.py does. One thread. */
#ifndef CORELANE_LIBOS_SERVICE_REPLACING_H
#define CORELANE_LIBOS_SERVICE_REPLACING_H

#include "options.h"

#define REPLACING_LOOK_MS 100 /* between two looks */

/* Say that so many other members of the group drain. From here on they are looked at, for up to --wait. */
void replacing_begin(const struct options *o, const char *name, int others);
/* Look whether they have ended, and say so, or that time is over. False: there is nothing more to look at. */
bool replacing_look(const struct options *o);

#endif
