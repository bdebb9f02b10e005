/* A baseline of `corelane bench raft`: clients of etcd that put as fast as they are answered, over gRPC as etcd's own
 * clients do (HTTP/2 by libnghttp2; the two messages of protobuf that it takes are made by hand). The benchmark
 * compiles this file by itself with -DCORELANE_ETCD and links that library; in libcorelane it is empty.
 *
 *     etcd_put PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES
 *
 * Each client has one put outstanding, of a key of the thousand that ours put; all are streams of one connection to
 * 127.0.0.1:PORT, which is the cheapest way for etcd. What is due leaves with one call, as in udp_mux_put.c.
 * After SECONDS, and as many puts as were answered in them, the latencies go to stdout as 64-bit nanoseconds. */
#ifdef CORELANE_ETCD

#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_VALUE 4096

struct client {
    uint64_t begun_ns;
    int32_t stream;
    size_t sent, bytes;
    int status; /* of gRPC; -1: none yet */
    uint8_t request[MAX_KEY + MAX_VALUE + 64];
};

static struct client clients[MAX_CLIENTS];
static uint64_t *latencies_ns, n_latencies, begun_ns, end_ns, n_puts;
static unsigned n_clients, key_bytes, value_bytes;
static char authority[32];

/* A field of protobuf that holds bytes. Returns where the next one goes. */
static uint8_t *field(uint8_t *p, unsigned number, const void *data, size_t n)
{
    *p++ = (uint8_t)(number << 3 | 2);
    for (size_t rest = n;; rest >>= 7) {
        *p++ = (uint8_t)((rest & 127) | (rest > 127 ? 128 : 0));
        if (rest <= 127)
            break;
    }
    memcpy(p, data, n);
    return p + n;
}

/* etcdserverpb.PutRequest {key = 1, value = 2} behind gRPC's five bytes. */
static void make_request(struct client *c)
{
    char key[MAX_KEY + 1];
    static uint8_t value[MAX_VALUE];
    int n = snprintf(key, sizeof key, "%0*u", (int)key_bytes, (unsigned)(n_puts++ % KEYS));
    memset(value, 'v', value_bytes);
    uint8_t *end = field(field(c->request + 5, 1, key, (size_t)n), 2, value, value_bytes);
    uint32_t message = htonl((uint32_t)(end - c->request - 5));
    c->request[0] = 0;
    memcpy(c->request + 1, &message, 4);
    c->bytes = (size_t)(end - c->request);
    c->sent = 0;
    c->status = -1;
}

static ssize_t on_read(nghttp2_session *s, int32_t stream, uint8_t *buf, size_t room, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    struct client *c = source->ptr;
    size_t n = c->bytes - c->sent < room ? c->bytes - c->sent : room;
    (void)s, (void)stream, (void)user;
    memcpy(buf, c->request + c->sent, n);
    c->sent += n;
    if (c->sent == c->bytes)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

static void put(nghttp2_session *s, struct client *c)
{
    nghttp2_nv headers[] = {header(":method", "POST"),
                            header(":scheme", "http"),
                            header(":path", "/etcdserverpb.KV/Put"),
                            header(":authority", authority),
                            header("content-type", "application/grpc"),
                            header("te", "trailers")};
    nghttp2_data_provider body = {.source.ptr = c, .read_callback = on_read};
    make_request(c);
    c->begun_ns = now_ns();
    c->stream = nghttp2_submit_request(s, NULL, headers, sizeof headers / sizeof *headers, &body, c);
    if (c->stream < 0)
        die("request", nghttp2_strerror(c->stream));
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t name_bytes,
                     const uint8_t *value, size_t value_length, uint8_t flags, void *user)
{
    struct client *c = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
    (void)flags, (void)user;
    if (c && name_bytes == 11 && memcmp(name, "grpc-status", 11) == 0 && value_length)
        c->status = atoi((const char *)value);
    if (c && value_length && name_bytes == 12 && memcmp(name, "grpc-message", 12) == 0)
        fprintf(stderr, "etcd_put: %.*s\n", (int)value_length, (const char *)value);
    return 0;
}

static int on_close(nghttp2_session *s, int32_t stream, uint32_t error, void *user)
{
    struct client *c = nghttp2_session_get_stream_user_data(s, stream);
    uint64_t now = now_ns();
    (void)user;
    if (!c)
        return 0;
    if (error || c->status)
        die("put", error ? nghttp2_http2_strerror(error) : "etcd answered with an error");
    if (now >= begun_ns && n_latencies < MAX_LATENCIES)
        latencies_ns[n_latencies++] = now - c->begun_ns;
    if (now < end_ns)
        put(s, c);
    return 0;
}

static int dial(unsigned port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        die("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const uint8_t *data, size_t n)
{
    ssize_t now;
    for (size_t sent = 0; sent < n; sent += (size_t)now)
        if ((now = send(fd, data + sent, n - sent, MSG_NOSIGNAL)) <= 0)
            die("send", strerror(errno));
}

/* The library hands out a frame at a time: gathered, so that all that is due leaves with one call. */
static void send_due(nghttp2_session *s, int fd)
{
    static uint8_t gathered[1 << 18];
    const uint8_t *frame;
    size_t n = 0;
    ssize_t bytes;
    while ((bytes = nghttp2_session_mem_send(s, &frame)) > 0) {
        if ((size_t)bytes > sizeof gathered - n) {
            send_all(fd, gathered, n);
            n = 0;
        }
        if ((size_t)bytes > sizeof gathered)
            die("send", "a frame is longer than the buffer");
        memcpy(gathered + n, frame, (size_t)bytes);
        n += (size_t)bytes;
    }
    if (bytes < 0)
        die("send", nghttp2_strerror((int)bytes));
    send_all(fd, gathered, n);
}

static void run(nghttp2_session *s, int fd, double seconds)
{
    static uint8_t buf[1 << 18];
    begun_ns = now_ns() + 300000000u; /* warming up */
    end_ns = begun_ns + (uint64_t)(seconds * 1e9);
    nghttp2_submit_settings(s, NGHTTP2_FLAG_NONE, NULL, 0);
    for (unsigned i = 0; i < n_clients; i++)
        put(s, &clients[i]);
    while (now_ns() < end_ns) {
        send_due(s, fd);
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n <= 0)
            die("receive", n ? strerror(errno) : "etcd closed the connection");
        ssize_t taken = nghttp2_session_mem_recv(s, buf, (size_t)n);
        if (taken < 0)
            die("receive", nghttp2_strerror((int)taken));
    }
}

int main(int argc, char **argv)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *s;
    if (argc != 6)
        die("usage", "PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES");
    unsigned port = (unsigned)atoi(argv[1]);
    n_clients = (unsigned)atoi(argv[2]);
    key_bytes = (unsigned)atoi(argv[4]);
    value_bytes = (unsigned)atoi(argv[5]);
    if (n_clients < 1 || n_clients > MAX_CLIENTS || key_bytes < 3 || key_bytes > MAX_KEY || value_bytes > MAX_VALUE)
        die("usage", "1 to 1024 clients, keys of 3 to 250 bytes, values of at most 4096");
    snprintf(authority, sizeof authority, "127.0.0.1:%u", port);
    latencies_ns = malloc(MAX_LATENCIES * sizeof *latencies_ns);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&s, callbacks, NULL);
    run(s, dial(port), atof(argv[3]));
    fwrite(latencies_ns, sizeof *latencies_ns, n_latencies, stdout);
    return fflush(stdout) ? 1 : 0;
}

#else
typedef int cl_etcd_put_is_compiled_by_itself;
#endif
