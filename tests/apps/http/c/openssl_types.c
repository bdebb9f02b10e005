/* Whether apps/http/openssl.h declares OpenSSL as its own headers do: it compiles if so. */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "apps/http/openssl.h"

#define SAME(returns, name, parameters)                                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), returns(*) parameters), #name);
CL_OPENSSL(SAME)

#define EQUAL(ours, theirs) _Static_assert((unsigned long)(ours) == (unsigned long)(theirs), #theirs);
EQUAL(CL_SSL_CTRL_MODE, SSL_CTRL_MODE)
EQUAL(CL_SSL_CTRL_SET_SESS_CACHE_MODE, SSL_CTRL_SET_SESS_CACHE_MODE)
EQUAL(CL_SSL_CTRL_SET_MIN_PROTO_VERSION, SSL_CTRL_SET_MIN_PROTO_VERSION)
EQUAL(CL_SSL_MODE_RELEASE_BUFFERS, SSL_MODE_RELEASE_BUFFERS)
EQUAL(CL_SSL_SESS_CACHE_OFF, SSL_SESS_CACHE_OFF)
EQUAL(CL_SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_CIPHER_SERVER_PREFERENCE)
EQUAL(CL_SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_RENEGOTIATION)
EQUAL(CL_SSL_TLS1_2_VERSION, TLS1_2_VERSION)
EQUAL(CL_SSL_FILETYPE_PEM, SSL_FILETYPE_PEM)
EQUAL(CL_SSL_ERROR_WANT_READ, SSL_ERROR_WANT_READ)
EQUAL(CL_SSL_ERROR_ZERO_RETURN, SSL_ERROR_ZERO_RETURN)
EQUAL(CL_SSL_TLSEXT_ERR_OK, SSL_TLSEXT_ERR_OK)
EQUAL(CL_SSL_TLSEXT_ERR_ALERT_FATAL, SSL_TLSEXT_ERR_ALERT_FATAL)
EQUAL(CL_BIO_CTRL_RESET, BIO_CTRL_RESET)
EQUAL(CL_BIO_CTRL_INFO, BIO_CTRL_INFO)

int main(void)
{
    return 0;
}
