/* The parser: one command out of bytes that come in any pieces. It goes on where it stopped, so a command costs its
 * bytes once however it is cut.
 *
 * Multibulk: "*N\r\n" and N times "$LEN\r\n" LEN bytes "\r\n". Inline: words on a line, in quotes with escapes if need
 * be. Limits and their words are Redis': count lines and inline commands of 64 KiB, proto-max-bulk-len; a client that
 * is not authenticated may send 10 arguments of 16 KiB. */
#ifndef CORELANE_APPS_RESP_PARSE_H
#define CORELANE_APPS_RESP_PARSE_H

#include "resp.h"

enum cl_rparse { CL_RP_MORE = 0, CL_RP_COMMAND, CL_RP_INLINE, CL_RP_ERROR };

/* Look at a command that begins at buf. MORE: it is not complete. COMMAND: it is, and takes p->at bytes; its p->argc
 * arguments are p->args (0 of them: nothing is to be done). INLINE: the caller has the bytes in memory that may be
 * written to, and calls cl_rparse_inline. ERROR: *error says what is wrong. */
enum cl_rparse cl_rparse(struct cl_resp_client *c, const uint8_t *buf, uint64_t len, char error[128]);
/* As cl_rparse, of a command that does not begin with '*'; arguments are unescaped where they are. Never INLINE. */
enum cl_rparse cl_rparse_inline(struct cl_resp_client *c, uint8_t *buf, uint64_t len, char error[128]);
/* Begin the next command. */
void cl_rparse_reset(struct cl_resp_client *c);
void cl_rparse_end(struct cl_resp_client *c);

#endif
