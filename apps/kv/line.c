/* What all commands of one line share: refusals, and the data block that follows some of them. */
#include "command_layout.h"

void kv_refuse(struct kv_command *c, const char *text)
{
    if (!c->thread->measured)
        cl_count(&c->thread->counters.bad_commands, 1);
    kv_answer(c, text);
}

void kv_take_noreply(struct kv_command *c)
{
    if (c->n_tokens <= KV_MAX_TOKENS && kv_token_is(c->token[c->n_tokens - 1], "noreply"))
        c->noreply = true;
}

int kv_refuse_and_end(struct kv_command *c, const char *text)
{
    kv_refuse(c, text);
    return CL_KV_QUIT;
}

const char *kv_stored_text(int rc)
{
    switch (rc) {
    case CL_KV_OK:
        return "STORED";
    case CL_KV_NOT_STORED:
        return "NOT_STORED";
    case CL_KV_EXISTS:
        return "EXISTS";
    case CL_KV_NOT_FOUND:
        return "NOT_FOUND";
    case CL_KV_TOO_LARGE:
        return "SERVER_ERROR object too large for cache";
    default:
        return "SERVER_ERROR out of memory storing object";
    }
}

/* The transport has no memory to wait for a value: the store refuses it. */
static int throw_block(struct kv_command *c, uint64_t block, const uint8_t **value)
{
    *value = NULL;
    c->session->swallow = block;
    return CL_KV_MORE;
}

int kv_take_block(struct kv_command *c, const struct cl_kv_key *key, uint64_t block, const uint8_t **value)
{
    *value = c->data;
    if (!kv_fits(c->thread->store, key->len, block - 2)) {
        c->session->swallow = block;
        return CL_KV_MORE;
    }
    if (c->data_len < block) {
        c->session->want = (uint64_t)(c->data - c->line) + block;
        if (!kv_may_wait(c))
            return throw_block(c, block, value);
        return KV_DATA_MISSING;
    }
    if (memcmp(c->data + block - 2, "\r\n", 2) != 0)
        return kv_refuse_and_end(c, "CLIENT_ERROR bad data chunk");
    c->data_used = block;
    return CL_KV_MORE;
}

void kv_flush(struct cl_kv_thread *t, uint32_t at_s)
{
    if (at_s && at_s <= t->now_s)
        at_s = CL_KV_NEVER_S; /* a day that is past: nothing, and what waited does not come either, as in memcached */
    cl_kv_flush_all(t, at_s ? at_s : t->now_s);
}
