/* TLS through the host, with OpenSSL as the client too: handshakes and requests in pieces of every size, with offers of
 * ALPN that fit and that do not, and with a byte that is changed. Under the sanitizers.
 *
 * tls_pieces CERTIFICATES KEY ROUNDS SEED */
#include "apps/http/handler.h"
#include "apps/http/host.h"
#include "apps/http/openssl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK "POST /r HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"

static const struct cl_openssl *ssl;
static struct cl_http_service *service;
static struct cl_http_host *host;
static uint64_t whole, refused, broken;

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

static int64_t echo(const uint8_t *target, int64_t target_len, const uint8_t *body, int64_t len, uint8_t *reply,
                    int64_t room, int64_t *answered, void *arg)
{
    (void)target, (void)target_len, (void)arg, (void)room;
    memcpy(reply, body, (size_t)len);
    *answered = len;
    return 200;
}

struct client {
    struct ssl_st *session;
    struct bio_st *in, *out;
    size_t step;
    int64_t spoil; /* the byte of what is sent that is changed; < 0: none */
};

/* Give what the client has to say to the server, and the other way round. Returns whether anything moved. */
static bool carry(struct client *c)
{
    uint8_t data[512];
    bool moved = false;
    for (int n; (n = ssl->BIO_read(c->out, data, (int)c->step)) > 0; moved = true) {
        if (c->spoil >= 0 && c->spoil < n)
            data[c->spoil] ^= 0x40;
        c->spoil -= n;
        uint8_t *piece = malloc((size_t)n); /* of exactly its size */
        memcpy(piece, data, (size_t)n);
        if (cl_http_host_send(host, piece, n) != n)
            die("a server with room did not take all");
        free(piece);
    }
    for (int64_t n; (n = cl_http_host_read(host, data, (int64_t)c->step)) > 0; moved = true)
        ssl->BIO_write(c->in, data, (int)n);
    return moved;
}

/* Whether the handshake was done. */
static bool shake_hands(struct client *c)
{
    for (;;) {
        int rc = ssl->SSL_do_handshake(c->session);
        if (rc == 1)
            return true;
        bool wants = ssl->SSL_get_error(c->session, rc) == CL_SSL_ERROR_WANT_READ;
        if (!carry(c) || !wants)
            return false;
    }
}

/* Whether the answer to one request came. */
static bool ask(struct client *c)
{
    char answer[1024] = "";
    int len = 0;
    if (ssl->SSL_write(c->session, ASK, sizeof ASK - 1) != sizeof ASK - 1)
        return false;
    while (!strstr(answer, "\r\n\r\nhello")) {
        bool moved = carry(c);
        int n = ssl->SSL_read(c->session, answer + len, (int)sizeof answer - 1 - len);
        if (n <= 0 && !moved)
            return false;
        len += n > 0 ? n : 0;
    }
    return strncmp(answer, "HTTP/1.1 200 OK", 15) == 0;
}

static void run(struct ssl_ctx_st *ctx, unsigned i)
{
    static const char *const offers[] = {"\x08http/1.1", "\x02h2\x08http/1.1", "\x02h2", "\x08http/1.0\x02h2", NULL};
    const char *offer = offers[(unsigned)rand() % 5];
    struct client c = {.session = ssl->SSL_new(ctx),
                       .in = ssl->BIO_new(ssl->BIO_s_mem()),
                       .out = ssl->BIO_new(ssl->BIO_s_mem()),
                       .step = 1 + (size_t)rand() % (i % 2 ? 7 : 500),
                       .spoil = rand() % 2 ? -1 : rand() % 1200};
    ssl->ERR_clear_error();
    ssl->SSL_set_bio(c.session, c.in, c.out);
    ssl->SSL_set_connect_state(c.session);
    if (offer)
        ssl->SSL_set_alpn_protos(c.session, (const unsigned char *)offer, (unsigned)strlen(offer));
    if (cl_http_host_open(host, true))
        die("it does not open");
    bool fits = !offer || strstr(offer, "http/1.1"), clean = c.spoil < 0;
    bool done = shake_hands(&c) && ask(&c);
    if (clean && done != fits)
        die(done ? "an offer that does not fit was taken" : "what is right was refused");
    if (done)
        whole++;
    else
        *(clean ? &refused : &broken) += 1;
    ssl->SSL_free(c.session);
}

int main(int argc, char **argv)
{
    struct cl_http_options options;
    char err[256];
    if (argc < 5)
        return 2;
    cl_http_options_init(&options);
    srand((unsigned)atoi(argv[4]));
    if (!(ssl = cl_openssl_load(err)) || cl_http_service_new(&options, NULL, 1, &service, err) ||
        cl_http_set_certificate(service, argv[1], argv[2], err))
        die(err);
    if (cl_http_add_handler(service, "/r", CL_HTTP_TAKES_POST, "text/plain", 64, echo, NULL) ||
        !(host = cl_http_host_new(service, 65536)))
        die("it cannot be made");
    struct ssl_ctx_st *ctx = ssl->SSL_CTX_new(ssl->TLS_client_method());
    for (unsigned i = 0; i < (unsigned)atoi(argv[3]); i++)
        run(ctx, i);
    ssl->SSL_CTX_free(ctx);
    cl_http_host_delete(host);
    if (cl_http_used_bytes(service) || cl_http_alive(service))
        die("memory stays");
    cl_http_service_delete(service);
    if (!whole || !refused || !broken)
        die("some case never came: this tests nothing");
    printf("%llu answered, %llu refused, %llu broken\n", (unsigned long long)whole, (unsigned long long)refused,
           (unsigned long long)broken);
    return 0;
}
