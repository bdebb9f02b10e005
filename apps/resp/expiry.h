/* Times as commands give them: EX, PX, EXAT, PXAT and the number behind. */
#ifndef CORELANE_APPS_RESP_EXPIRY_H
#define CORELANE_APPS_RESP_EXPIRY_H

#include "command.h"

struct cl_expiry {
    int64_t unit_ms; /* 1000 or 1 */
    bool absolute;
    uint32_t at; /* the argument that has the number; 0: none was given */
};

/* Whether the word is a unit; x->at is the caller's. */
bool cl_expiry_unit(struct cl_slice word, struct cl_expiry *x);
/* The time in ms of the wall clock. False: it is no time, which was answered; `name` is the command's. */
bool cl_expiry_at(struct cl_resp_client *c, const struct cl_expiry *x, const char *name, int64_t *at_ms);

#endif
