/* The functions of OpenSSL 3 that TLS needs, found in libssl.so.3 when a server wants TLS: nobody else loads it, and to
 * build corelane takes no package more. Their types are declared here as ssl(7) and crypto(7) document them;
 * tests/apps/http/c/openssl_types.c compares them with OpenSSL's headers. */
#ifndef CORELANE_APPS_HTTP_OPENSSL_H
#define CORELANE_APPS_HTTP_OPENSSL_H

#include <corelane/runtime/base.h>

struct ssl_st;
struct ssl_ctx_st;
struct ssl_method_st;
struct bio_st;
struct bio_method_st;
struct X509_VERIFY_PARAM_st;
struct x509_store_ctx_st;
struct x509_st;

typedef int (*cl_openssl_alpn)(struct ssl_st *ssl, const unsigned char **out, unsigned char *out_len,
                               const unsigned char *in, unsigned int in_len, void *arg);
typedef int (*cl_openssl_verify)(int right, struct x509_store_ctx_st *ctx);
typedef int (*cl_openssl_passphrase)(char *buf, int size, int writes, void *arg);
typedef int (*cl_openssl_servername)(struct ssl_st *ssl, int *alert, void *arg);
typedef int (*cl_openssl_write)(struct bio_st *bio, const char *data, int len);
typedef int (*cl_openssl_read)(struct bio_st *bio, char *data, int room);
typedef long (*cl_openssl_ctrl)(struct bio_st *bio, int op, long number, void *pointer);

/* X(what it returns, name, parameters) */
#define CL_OPENSSL(X)                                                                                                  \
    X(const struct ssl_method_st *, TLS_server_method, (void))                                                         \
    X(const struct ssl_method_st *, TLS_client_method, (void))                                                         \
    X(struct ssl_ctx_st *, SSL_CTX_new, (const struct ssl_method_st *))                                                \
    X(void, SSL_CTX_free, (struct ssl_ctx_st *))                                                                       \
    X(long, SSL_CTX_ctrl, (struct ssl_ctx_st *, int, long, void *))                                                    \
    X(uint64_t, SSL_CTX_set_options, (struct ssl_ctx_st *, uint64_t))                                                  \
    X(int, SSL_CTX_use_certificate_chain_file, (struct ssl_ctx_st *, const char *))                                    \
    X(int, SSL_CTX_use_PrivateKey_file, (struct ssl_ctx_st *, const char *, int))                                      \
    X(int, SSL_CTX_check_private_key, (const struct ssl_ctx_st *))                                                     \
    X(int, SSL_CTX_load_verify_locations, (struct ssl_ctx_st *, const char *, const char *))                           \
    X(int, SSL_CTX_set_default_verify_paths, (struct ssl_ctx_st *))                                                    \
    X(void, SSL_CTX_set_verify, (struct ssl_ctx_st *, int, cl_openssl_verify))                                         \
    X(int, SSL_CTX_set_session_id_context, (struct ssl_ctx_st *, const unsigned char *, unsigned int))                 \
    X(void, SSL_CTX_set_alpn_select_cb, (struct ssl_ctx_st *, cl_openssl_alpn, void *))                                \
    X(void, SSL_CTX_set_default_passwd_cb, (struct ssl_ctx_st *, cl_openssl_passphrase))                               \
    X(long, SSL_CTX_callback_ctrl, (struct ssl_ctx_st *, int, void (*)(void)))                                         \
    X(struct x509_st *, SSL_CTX_get0_certificate, (const struct ssl_ctx_st *))                                         \
    X(int, X509_check_host, (struct x509_st *, const char *, size_t, unsigned int, char **))                           \
    X(const char *, SSL_get_servername, (const struct ssl_st *, const int))                                            \
    X(struct ssl_ctx_st *, SSL_set_SSL_CTX, (struct ssl_st *, struct ssl_ctx_st *))                                    \
    X(struct ssl_st *, SSL_new, (struct ssl_ctx_st *))                                                                 \
    X(void, SSL_free, (struct ssl_st *))                                                                               \
    X(void, SSL_set_accept_state, (struct ssl_st *))                                                                   \
    X(void, SSL_set_connect_state, (struct ssl_st *))                                                                  \
    X(long, SSL_ctrl, (struct ssl_st *, int, long, void *))                                                            \
    X(int, SSL_set1_host, (struct ssl_st *, const char *))                                                             \
    X(struct X509_VERIFY_PARAM_st *, SSL_get0_param, (struct ssl_st *))                                                \
    X(int, X509_VERIFY_PARAM_set1_ip_asc, (struct X509_VERIFY_PARAM_st *, const char *))                               \
    X(long, SSL_get_verify_result, (const struct ssl_st *))                                                            \
    X(const char *, X509_verify_cert_error_string, (long))                                                             \
    X(int, SSL_set_alpn_protos, (struct ssl_st *, const unsigned char *, unsigned int))                                \
    X(void, SSL_set_bio, (struct ssl_st *, struct bio_st *, struct bio_st *))                                          \
    X(int, SSL_do_handshake, (struct ssl_st *))                                                                        \
    X(int, SSL_read, (struct ssl_st *, void *, int))                                                                   \
    X(int, SSL_write, (struct ssl_st *, const void *, int))                                                            \
    X(int, SSL_shutdown, (struct ssl_st *))                                                                            \
    X(int, SSL_get_error, (const struct ssl_st *, int))                                                                \
    X(int, SSL_session_reused, (const struct ssl_st *))                                                                \
    X(struct bio_st *, BIO_new, (const struct bio_method_st *))                                                        \
    X(const struct bio_method_st *, BIO_s_mem, (void))                                                                 \
    X(int, BIO_free, (struct bio_st *))                                                                                \
    X(int, BIO_write, (struct bio_st *, const void *, int))                                                            \
    X(int, BIO_read, (struct bio_st *, void *, int))                                                                   \
    X(long, BIO_ctrl, (struct bio_st *, int, long, void *))                                                            \
    X(struct bio_method_st *, BIO_meth_new, (int, const char *))                                                       \
    X(void, BIO_meth_free, (struct bio_method_st *))                                                                   \
    X(int, BIO_meth_set_write, (struct bio_method_st *, cl_openssl_write))                                             \
    X(int, BIO_meth_set_read, (struct bio_method_st *, cl_openssl_read))                                               \
    X(int, BIO_meth_set_ctrl, (struct bio_method_st *, cl_openssl_ctrl))                                               \
    X(void, BIO_set_data, (struct bio_st *, void *))                                                                   \
    X(void *, BIO_get_data, (struct bio_st *))                                                                         \
    X(void, BIO_set_flags, (struct bio_st *, int))                                                                     \
    X(void, BIO_clear_flags, (struct bio_st *, int))                                                                   \
    X(void, ERR_clear_error, (void))                                                                                   \
    X(unsigned long, ERR_get_error, (void))                                                                            \
    X(void, ERR_error_string_n, (unsigned long, char *, size_t))

struct cl_openssl {
#define CL_OPENSSL_FIELD(returns, name, parameters) returns(*name) parameters;
    CL_OPENSSL(CL_OPENSSL_FIELD)
#undef CL_OPENSSL_FIELD
};

/* Numbers of OpenSSL's headers, compared by the same test. */
#define CL_SSL_CTRL_MODE 33
#define CL_SSL_CTRL_SET_SESS_CACHE_MODE 44
#define CL_SSL_CTRL_SET_TLSEXT_SERVERNAME_CB 53
#define CL_SSL_CTRL_SET_TLSEXT_SERVERNAME_ARG 54
#define CL_SSL_CTRL_SET_MIN_PROTO_VERSION 123
#define CL_SSL_MODE_RELEASE_BUFFERS 0x10
#define CL_SSL_SESS_CACHE_OFF 0
#define CL_SSL_OP_CIPHER_SERVER_PREFERENCE (1u << 22)
#define CL_SSL_OP_NO_RENEGOTIATION (1u << 30)
#define CL_SSL_TLS1_2_VERSION 0x303
#define CL_SSL_FILETYPE_PEM 1
#define CL_SSL_ERROR_WANT_READ 2
#define CL_SSL_ERROR_ZERO_RETURN 6
#define CL_SSL_TLSEXT_ERR_OK 0
#define CL_SSL_TLSEXT_ERR_ALERT_FATAL 2
#define CL_SSL_CTRL_SET_TLSEXT_HOSTNAME 55
#define CL_TLSEXT_NAMETYPE_HOST_NAME 0
#define CL_SSL_VERIFY_NONE 0
#define CL_SSL_VERIFY_PEER 1
#define CL_SSL_X509_V_OK 0
#define CL_SSL_TLSEXT_ERR_NOACK 3
#define CL_BIO_CTRL_RESET 1
#define CL_BIO_CTRL_INFO 3
#define CL_BIO_CTRL_FLUSH 11
#define CL_BIO_FLAGS_READ 0x01
#define CL_BIO_FLAGS_SHOULD_RETRY 0x08
#define CL_BIO_TYPE_SOURCE_SINK 0x400

/* The functions; NULL: they cannot be had, and err says why. Loaded at the first call, for good. Any thread. */
const struct cl_openssl *cl_openssl_load(char err[256]);

/* What it has returned, for who runs only since that was so. */
const struct cl_openssl *cl_openssl_loaded(void);

#endif
